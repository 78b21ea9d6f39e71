"""Operators and one fleet on real hosts: the lock on its control host, a record on each of them.

Each operator has a fleet folder of their own. One on another machine is one in another pid namespace, with
another host name: what pdctl there is a process of, pdctl here cannot see.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import LockedError
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.changing import changing, doing, fleet_lock
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet, remote
from pdctl.remote.journal import Call
from pdctl.remote.journal_read import list_runs
from pdctl.remote.lock_lease import hold
from pdctl.transport.far import calls
from tests.hosts.lab.host import LabHost, until
from tests.hosts.lab.lab import Lab
from tests.hosts.operator_home import through_a_command
from tests.hosts.terminal import Terminal
from tests.pdctl.models import model_script

ROOT = "/opt/pdctl/opr"
# Tools of the lock and of the audit record answer at once, everything else waits while /srv/slow is there.
PYTHON = """#!/bin/sh
case "$2" in take|beat|release|look|append|read) ;; *) while [ -e /srv/slow ]; do sleep 0.1; done ;; esac
exec /usr/bin/python3 "$@"
"""


@dataclass
class OperatorBox:
    """`away`: on another machine."""

    folder: Path
    away: bool = False

    def start(self, *argv: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pdctl", *argv]
        if self.away:
            inner = f"hostname far && exec {subprocess.list2cmdline(command)}"
            command = [
                "unshare",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                inner,
            ]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str) -> tuple[int, str]:
        """Exit code and everything it said."""
        started = self.start(*argv)
        out, err = started.communicate(timeout=120)
        return started.returncode, out + err

    def json(self, *argv: str) -> tuple[int, Any]:
        started = self.start(*argv, "--json")
        out, err = started.communicate(timeout=120)
        assert err == ""
        return started.returncode, json.loads(out)

    @property
    def context(self) -> Context:
        return Context(load_fleet(self.folder / "fleet.toml"))


@pytest.fixture
def ann(hosts: list[LabHost], home: Path, tmp_path: Path) -> OperatorBox:
    """Logs in as a user with sudo; the control host is h1, the router's."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    folder = tmp_path / "ann"
    folder.mkdir()
    named = tuple(remote(f"{h.name}={h.address}") for h in hosts[:2])
    init_fleet(folder / "fleet.toml", Wanted("opr", "/srv/model", hosts=named))
    path = folder / "fleet.toml"
    path.write_text(
        path.read_text().replace(
            'transport = "ssh"\n', 'transport = "ssh"\nuser = "ops"\npython = "/srv/py"\n'
        )
    )
    for host in hosts[:2]:
        host.sh(f"rm -rf {ROOT} /srv/slow; cat > /srv/py <<'END'\n{PYTHON}END\nchmod 755 /srv/py")
    return OperatorBox(folder)


@pytest.fixture
def bob(ann: OperatorBox, tmp_path: Path) -> OperatorBox:
    shutil.copytree(ann.folder, tmp_path / "bob")
    return OperatorBox(tmp_path / "bob")


@pytest.fixture
def carol(ann: OperatorBox, tmp_path: Path) -> OperatorBox:
    shutil.copytree(ann.folder, tmp_path / "carol")
    return OperatorBox(tmp_path / "carol", away=True)


Begin = Callable[[OperatorBox], subprocess.Popen[str]]


@pytest.fixture
def begin(hosts: list[LabHost]) -> Iterator[Begin]:
    """A run of that operator which holds the lock and waits for its hosts, until /srv/slow goes."""
    started: list[subprocess.Popen[str]] = []

    def down(who: OperatorBox) -> subprocess.Popen[str]:
        for host in hosts[:2]:
            host.sh("touch /srv/slow")
        run = who.start("down", "--yes")
        started.append(run)
        until(lambda: list_runs(who.folder / ".pdctl" / "journal.db"), 30, "the run has begun")
        assert entry(hosts[0]) is not None
        return run

    yield down
    for run in started:
        if run.poll() is None:
            run.kill()
        run.communicate(timeout=30)


def entry(host: LabHost) -> dict[str, Any] | None:
    code, text = host.try_sh(f"cat {ROOT}/lock")
    return None if code else json.loads(text)


def let_go(hosts: list[LabHost]) -> None:
    for host in hosts[:2]:
        host.sh("rm -f /srv/slow")


def aged(host: LabHost, seconds: float) -> None:
    """As if the last heartbeat had been that long ago."""
    found = entry(host)
    assert found is not None
    found |= {k: found[k] - seconds for k in ("heartbeat", "up")}
    host.sh(f"cat > {ROOT}/lock <<'END'\n{json.dumps(found)}\nEND")


def test_one_changes_the_fleet_and_the_other_is_told_who(
    hosts: list[LabHost], ann: OperatorBox, bob: OperatorBox, begin: Begin
) -> None:
    run = begin(ann)
    code, said = bob.run("restart", "router", "--yes")
    assert code == Exit.LOCKED and f"(pid {run.pid})" in said and "pdctl down" in said
    code, document = bob.json("lock", "status")
    assert (code, document["state"], document["control"]) == (Exit.LOCKED, "live", "h1")
    assert document["holder"]["heartbeat_age_s"] < 60
    code, said = bob.run("lock", "release")
    assert code == Exit.LOCKED and f"(pid {run.pid})" in said, said
    assert (held := entry(hosts[0])) is not None and held["pid"] == run.pid
    waiting = bob.start("down", "--yes", "--json")
    assert waiting.wait(60) == Exit.LOCKED
    waiting.communicate()
    let_go(hosts)
    out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (Exit.OK, "nothing was running; every port is free\n")
    assert bob.run("lock", "status") == (Exit.OK, "free; the lock of this fleet is on h1\n")
    owner = hosts[0].sh(f"stat -c '%U %a' {ROOT} {ROOT}/lock.guard").split()
    assert owner == ["ops", "755", "ops", "600"]


def test_a_run_that_waits_gets_its_turn(
    hosts: list[LabHost], ann: OperatorBox, carol: OperatorBox, begin: Begin
) -> None:
    run = begin(ann)
    waiting = carol.start("restart", "router", "--yes", "--lock-wait", "100")
    assert waiting.stderr is not None
    assert f"(pid {run.pid})" in waiting.stderr.readline()
    let_go(hosts)
    _, said = waiting.communicate(timeout=90)
    assert "held" not in said and "took over" not in said
    assert entry(hosts[0]) is None


def test_a_holder_on_another_machine_is_dead_when_its_heartbeat_is_old(
    hosts: list[LabHost], ann: OperatorBox, carol: OperatorBox, begin: Begin
) -> None:
    """Killed a moment ago, it still counts as alive: nobody here can see its process."""
    run = begin(carol)
    run.kill()
    run.wait(30)
    code, said = ann.run("down", "--yes")
    assert code == Exit.LOCKED and "@far (pid" in said
    aged(hosts[0], 61)
    assert ann.json("lock", "status")[1]["state"] == "stale"
    let_go(hosts)
    code, said = ann.run("down", "--yes")
    assert code == Exit.OK and "took over the lock of a run that is dead: " in said and "@far" in said
    code, record = carol.json("history", "--host", "h1")
    (line,) = [r for r in record["lines"] if r["step"] == "lock"]
    assert "@far" in line["what"] and line["verb"] == "down"
    (died,) = carol.json("history")[1]["runs"]
    assert died["command"] == "down"


def test_a_killed_holder_on_this_machine_is_dead_at_once(
    hosts: list[LabHost], ann: OperatorBox, bob: OperatorBox, begin: Begin
) -> None:
    run = begin(ann)
    run.kill()
    run.wait(30)
    let_go(hosts)
    code, said = bob.run("down", "--yes")
    assert code == Exit.OK and "took over the lock of a run that is dead: " in said
    assert f"(pid {run.pid})" in said
    (died,) = ann.json("history")[1]["runs"]
    assert died["state"] == "died"
    code, said = ann.run("resume", died["id"])
    assert code == Exit.OK and "again: pdctl down" in said


def test_a_lock_by_hand_holds_for_all(
    hosts: list[LabHost], ann: OperatorBox, bob: OperatorBox, carol: OperatorBox
) -> None:
    assert carol.run("lock", "take", "--reason", "moving racks")[0] == Exit.OK
    aged(hosts[0], 86400)
    for who in (ann, bob, carol):
        code, said = who.run("restart", "router", "--yes", "--lock-wait", "600")
        assert code == Exit.LOCKED and "by hand for" in said and "moving racks" in said
        assert "Waiting" not in said
    assert ann.run("lock", "release")[0] == Exit.LOCKED
    assert carol.run("lock", "release")[0] == Exit.OK
    assert ann.run("lock", "status")[0] == Exit.OK


@pytest.mark.slow
def test_a_control_host_that_is_down_changes_nothing(
    lab: Lab, hosts: list[LabHost], ann: OperatorBox
) -> None:
    lab.crash("h1")
    for verb in (["down", "--yes"], ["lock", "status"]):
        code, said = ann.run(*verb)
        assert code == Exit.UNREACHABLE, said
        assert "The fleet's lock is on h1, which cannot be reached, so nothing was changed." in said
        assert "Traceback" not in said
    assert hosts[1].try_sh(f"ls {ROOT}")[0] != 0, "h2 was touched"
    assert ann.json("history")[1]["runs"] == []


def test_what_is_changed_on_a_host_is_in_its_record_whoever_did_it(
    hosts: list[LabHost], ann: OperatorBox, bob: OperatorBox
) -> None:
    for who in (ann, bob):
        with who.context as ctx, changing(ctx, Call(f"deploy of {who.folder.name}")) as journal:
            for host in ("h1", "h2"):
                with doing(ctx, f"{host}/start", host, f"start on {host}"):
                    ctx.units(host).status()
            journal.note("done")
    for name in ("h1", "h2"):
        _, record = bob.json("history", "--host", name)
        assert [(r["verb"], r["what"], r["result"]) for r in record["lines"]] == 2 * [
            ("deploy", f"start on {name}", "done")
        ]
    assert hosts[1].sh(f"stat -c '%U %a' {ROOT}/audit.jsonl").split() == ["ops", "600"]
    (run,) = bob.json("history")[1]["runs"]
    _, whole = bob.json("history", run["id"])
    steps = whole["runs"][0]["steps"]
    assert [(s["host"], s["state"], {c["host"] for c in s["commands"]}) for s in steps] == [
        ("h1", "done", {"h1"}),
        ("h2", "done", {"h2"}),
    ]


def test_a_run_whose_lock_is_taken_by_force_begins_no_other_step(
    hosts: list[LabHost], ann: OperatorBox, bob: OperatorBox
) -> None:
    said: list[str] = []
    ctx = ann.context
    ctx.say = said.append
    with pytest.raises(LockedError) as caught, ctx, changing(ctx, Call("deploy")) as journal:
        with journal.doing("a", "h1", "first"):
            pass
        assert bob.run("lock", "release", "--force", "--yes")[0] == Exit.OK
        until(lambda: said, 60, "the heartbeat notices it")
        with journal.doing("b", "h2", "second"):
            pytest.fail("the step was begun")
    assert caught.value.code == "lock_lost" and "somebody released it by force" in caught.value.message
    assert [s["id"] for s in ann.json("history", journal.id)[1]["runs"][0]["steps"]] == ["a"]
    lines = bob.json("history", "--host", "h1")[1]["lines"]
    assert [r["what"].split(":")[0] for r in lines] == ["first", "released by force"]


def test_a_run_outlives_a_cut_shorter_than_its_lock(
    lab: Lab, ann: OperatorBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdctl.remote.lock_lease.BEAT", 0.5)
    monkeypatch.setattr(calls, "SILENCE", 2.0)
    monkeypatch.setattr(calls, "PING_EVERY", 0.4)
    said: list[str] = []
    ctx = ann.context
    with ctx, hold(fleet_lock(ctx), "pdctl deploy", "r", said.append) as lease:
        lab.net.cut("ctl", "h1")
        until(lambda: said, 60, "the heartbeat fails")
        assert said[0].startswith("the lock's heartbeat fails: ")
        lease.check()
        lab.net.heal()
        until(lambda: len(said) == 2, 60, "the lock is kept again")
        assert said[1] == "the lock on h1 can be kept again"
        lease.check()


def test_an_operator_without_sudo_is_told_so_and_nothing_was_changed(
    hosts: list[LabHost], ann: OperatorBox
) -> None:
    path = ann.folder / "fleet.toml"
    path.write_text(path.read_text().replace('user = "ops"', 'user = "dev"'))
    code, said = ann.run("down", "--yes")
    assert code == Exit.USAGE and "so nothing was changed" in said and "sudo" in said
    path.write_text(path.read_text().replace('user = "dev"\n', 'user = "dev"\nroot = "/home/dev/opr"\n'))
    assert ann.run("lock", "take", "--reason", "no root needed")[0] == Exit.OK
    assert hosts[0].sh("stat -c '%U %a' /home/dev/opr/lock").split() == ["dev", "600"]
    assert ann.run("lock", "release")[0] == Exit.OK


def test_an_interrupted_run_gives_the_lock_back(hosts: list[LabHost], ann: OperatorBox, begin: Begin) -> None:
    run = begin(ann)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)
    assert run.returncode == Exit.INTERRUPTED
    assert entry(hosts[0]) is None
    assert ann.json("history")[1]["runs"][0]["state"] == "interrupted"


@dataclass
class Hooked:
    """A fleet with a hook before its deploy that starts a child and waits for it."""

    ann: OperatorBox
    pids: Path

    @property
    def runs(self) -> bool:
        return self.pids.exists()

    def ended_whole(self, hosts: list[LabHost]) -> None:
        """What the hook has started is gone too, and no host has anything but the freed lock's places."""
        pids = self.pids.read_text().split()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 10, "it ended")
        assert entry(hosts[0]) is None
        for host in hosts[:2]:
            assert "releases" not in host.sh(f"ls -A {ROOT} 2>&1 || true"), "nothing was deployed"
        (found,) = self.ann.json("history")[1]["runs"]
        (whole,) = self.ann.json("history", found["id"])[1]["runs"]
        assert (whole["command"], whole["state"]) == ("deploy", "interrupted")
        assert [(s["id"], s["state"]) for s in whole["steps"]] == [("hook/pre-deploy", "interrupted")], whole


@pytest.fixture
def hooked(hosts: list[LabHost], ann: OperatorBox, host_python: str) -> Hooked:
    for host in hosts[:2]:
        host.sh(model_script("/srv/model"))
    path = ann.folder / "fleet.toml"
    existing = f'runtime = "existing"\npython = "{host_python}"'
    path.write_text(path.read_text().replace('python = "/srv/py"', existing))
    hook, pids = ann.folder / ".pdctl" / "hooks" / "pre-deploy", ann.folder / "pids"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\nsleep 300 & echo $$ $! > {pids}.new && mv {pids}.new {pids}; wait\n")
    hook.chmod(0o755)
    return Hooked(ann, pids)


def test_an_interrupt_within_a_hook_ends_all_of_it(hosts: list[LabHost], hooked: Hooked) -> None:
    run = hooked.ann.start("deploy", "--yes")
    until(lambda: hooked.runs or run.poll() is not None, 60, "the hook runs")
    assert run.poll() is None, run.communicate()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert run.returncode == Exit.INTERRUPTED and "Traceback" not in out + err, out + err
    hooked.ended_whole(hosts)


def test_ctrl_c_at_a_terminal_within_a_hook_does_the_same(
    hosts: list[LabHost], hooked: Hooked, home: Path
) -> None:
    """It reaches the whole foreground group, which what carries the connections is not in."""
    through_a_command(home, "h1", "h2")
    fleet = str(hooked.ann.folder / "fleet.toml")
    with Terminal("-m", "pdctl", "--fleet", fleet, "deploy", "--yes") as run:
        until(lambda: hooked.runs or run.code is not None, 60, "the hook runs")
        run.press("\x03")
        said = run.end(30)
        assert run.code == Exit.INTERRUPTED, said
    assert not any("Traceback" in line for line in said), said
    assert any("Interrupted" in line for line in said), said
    hooked.ended_whole(hosts)
