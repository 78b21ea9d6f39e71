"""Releases on real hosts that have nothing but Debian: a venv made from what pdctl sends, systemd, no index.

The engines are tests/pdctl/flows/fake_engine.py as a release's code, and the lock is two small packages; the
real ones are in test_closure.py.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.deploy.gate import unready
from pdctl.flows.deploy.planning import Deploy, plan_deploy
from pdctl.flows.deploy.result import DeployFailed, Outcome, State
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.down import down
from pdctl.flows.init import Wanted, init_fleet, remote
from pdctl.flows.ready import wait_ready
from pdctl.release.lock import Lock
from pdctl.remote.journal import Journal
from pdctl.remote.recording import Executed
from tests.hosts.killed import dies
from tests.hosts.lab.host import LabHost, until
from tests.hosts.lab.lab import Lab
from tests.pdctl.flows import fake_engine
from tests.pdctl.models import model_script
from tests.pdctl.release.conftest import make_wheel

WAIT = 60.0
FAKE = Path(str(fake_engine.__file__)).read_bytes()


def small_lock() -> Lock:
    return Lock("tinya==1.0\ntinyb==2.0\n")


@dataclass
class Away:
    """A cell over h1 and h2 and the router on h1, deployed from a folder of this machine."""

    folder: Path
    files: dict[str, bytes] = field(default_factory=lambda: {"engine/__main__.py": FAKE, "engine/x.py": b"1"})
    executed: list[Executed] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def context(self) -> Context:
        context = Context(load_fleet(self.folder / "fleet.toml"), say=self.said.append)
        context._record = self.executed.append  # type: ignore[method-assign]
        return context

    def edit(self, old: str, new: str) -> None:
        path = self.folder / "fleet.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def deploy(self, check: bool = False) -> tuple[Deploy, Outcome]:
        """Without a preflight, unless its libraries are said to be those of the small lock."""
        with self.context() as ctx, Journal(ctx.fleet.paths.journal, "deploy") as journal:
            made = plan_deploy(ctx, WAIT, restart, check=check)
            return made, apply_deploy(made, journal)

    def trips(self) -> dict[str, int]:
        """Round trips to each host for a deploy of what is there already."""
        self.executed.clear()
        made, _ = self.deploy()
        assert made.plan.changes == 0, made.plan.document()
        hosts = [done.host for done in self.executed]
        return {host: hosts.count(host) for host in hosts}


def restart(ctx: Context, cell: str) -> None:
    """In place of the co-restart, of whose links the fake engines know nothing."""
    for engine in ctx.fleet.cells[cell].engines:
        ctx.units(engine.host).restart(engine.name)
    wait_ready(ctx, ctx.fleet.cells[cell].engines, WAIT)


def fleet_on(folder: Path, hosts: list[LabHost], table: str) -> Path:
    folder.mkdir()
    path = folder / "fleet.toml"
    places = tuple(remote(f"{h.name}={h.address}") for h in hosts)
    for host in hosts:
        host.sh(model_script("/srv/model"))
    init_fleet(path, Wanted("away", "/srv/model", hosts=places))
    path.write_text(path.read_text().replace('transport = "ssh"\n', f'transport = "ssh"\n{table}'))
    return path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pdctl.flows.deploy.planning.engine_lock", small_lock)
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "tinya", "1.0", "tinyb>=2")
    make_wheel(folder, "tinyb", "2.0")
    return folder


def away(folder: Path, hosts: list[LabHost], table: str, patch: pytest.MonkeyPatch) -> Iterator[Away]:
    fleet_on(folder, hosts, table)
    made = Away(folder)
    patch.setattr("pdctl.flows.deploy.planning.package_files", lambda: made.files)
    try:
        yield made
    finally:
        with made.context() as ctx:
            down(ctx)
            root = ctx.fleet.hosts["h1"].root
        for host in hosts:
            host.sh(f"umount {root} 2>/dev/null; rm -rf {root} /etc/systemd/system/pdctl-*")
            host.sh("systemctl daemon-reload")


LOGINS = {
    "root": "",
    "ops": 'user = "ops"\n',
    "dev": 'user = "dev"\nscope = "user"\nroot = "/home/dev/fleet"\n',
}


@pytest.fixture(params=[pytest.param("root", marks=pytest.mark.slow), "ops", "dev"])
def bare(
    request: pytest.FixtureRequest,
    hosts: list[LabHost],
    home: Path,
    wheels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Away]:
    """As root, as a user with sudo, and as one without; the hosts have no index."""
    table = f'runtime = "wheelhouse"\nwheels = "{wheels}"\n{LOGINS[request.param]}'
    if request.param == "dev":
        for host in hosts[:2]:
            host.sh("loginctl enable-linger dev")
    yield from away(tmp_path / "fleet", hosts[:2], table, monkeypatch)


def test_from_nothing_to_serving_and_then_nothing(bare: Away, hosts: list[LabHost]) -> None:
    made, outcome = bare.deploy()
    assert outcome.exit is Exit.OK
    with bare.context() as ctx:
        assert unready(ctx) == {}
        host = ctx.fleet.hosts["h2"]
        pid = ctx.units("h2").status()["decode-0"].pid
    release = next(u.release for u in made.units.values() if u.host == "h2")
    login = host.spec.user or "root"
    assert hosts[1].sh(f"stat -c %U /proc/{pid} {host.root}").split() == [login, login]
    argv = hosts[1].sh(f"tr '\\0' ' ' < /proc/{pid}/cmdline")
    manifest = json.loads(hosts[1].sh(f"cat {host.root}/current/manifest.json"))
    assert manifest["id"] == release
    assert argv.startswith(
        f"{host.root}/venvs/{manifest['venv']}/bin/python -m engine serve --instance decode-0"
    )
    assert hosts[1].sh(f"readlink /proc/{pid}/cwd").strip() == f"{host.root}/trees/{manifest['tree']}"
    said = hosts[1].sh(f"{host.root}/current/venv/bin/python -c 'import tinya, tinyb; print(tinyb.VERSION)'")
    assert said.strip() == "2.0"
    modes = hosts[1].sh(f"stat -c '%a' {host.root}/env/decode-0.env {host.root}/env/fleet-token").split()
    assert modes == ["600", "600"]
    trips = bare.trips()
    assert set(trips) == {"h1", "h2"} and max(trips.values()) <= 4, trips


@pytest.fixture
def plain(
    hosts: list[LabHost], home: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Away]:
    table = f'runtime = "wheelhouse"\nwheels = "{wheels}"\n'
    yield from away(tmp_path / "fleet", hosts[:2], table, monkeypatch)


def test_a_changed_file_of_code_makes_no_environment_anew(plain: Away, hosts: list[LabHost]) -> None:
    plain.deploy()
    with plain.context() as ctx:
        root = ctx.fleet.hosts["h2"].root
    venvs = hosts[1].sh(f"stat -c '%n %i %Y' {root}/venvs/*")
    plain.files["engine/x.py"] = b"2"
    plain.executed.clear()
    made, _ = plain.deploy()
    described = [p for p in made.plan.pending if p.step.id == "h2/release"]
    assert described[0].differences[1:] == ("1 changed: engine/x.py",)
    assert "h2/venv" not in [p.step.id for p in made.plan.pending]
    assert hosts[1].sh(f"stat -c '%n %i %Y' {root}/venvs/*") == venvs
    assert sum(done.bytes for done in plain.executed if done.host == "h2") < 400_000
    assert hosts[1].sh(f"cat {root}/current/tree/engine/x.py") == "2"


def test_what_was_started_from_a_hand_s_files_is_restarted(plain: Away, hosts: list[LabHost]) -> None:
    """A drop-in and a restart by hand; then a drop-in that nothing was started from yet."""
    plain.deploy()
    h2, unit = hosts[1], "pdctl-decode@away-decode-0.service"
    drop_in = f"/etc/systemd/system/{unit}.d/mine.conf"
    write = f"printf '[Service]\\nEnvironment=MINE=1\\n' >{drop_in}; systemctl daemon-reload"
    h2.sh(f"{write}; systemctl restart {unit}")
    environ = f"tr '\\0' '\\n' </proc/$(systemctl show -P MainPID {unit})/environ"
    assert "MINE=1" in h2.sh(environ)
    made, _ = plain.deploy()
    said = {p.step.id: p.differences for p in made.plan.pending if p.differences}
    assert said == {
        "h2/unit/decode-0": (f"{unit}.d/mine.conf is not pdctl's; it will be set aside",),
        "co-restart/a": (f"decode-0 was started from what somebody else wrote: {unit}.d/mine.conf",),
    }
    assert "MINE=1" not in h2.sh(environ)
    assert plain.deploy()[0].plan.changes == 0
    pid = h2.sh(f"systemctl show -P MainPID {unit}")
    h2.sh(write)
    made, _ = plain.deploy()
    (pending,) = [p for p in made.plan.pending if not p.step.gate]
    assert pending.differences[0].endswith("(changed after decode-0 was started, which is not restarted)")
    assert h2.sh(f"systemctl show -P MainPID {unit}") == pid


def test_a_full_disk_stops_before_anything_is_switched(plain: Away, hosts: list[LabHost]) -> None:
    root = "/opt/pdctl/away"
    hosts[1].sh(f"mkdir -p {root} && mount -t tmpfs -o size=1M tmpfs {root}")
    with pytest.raises(PdctlError) as caught:
        plain.deploy()
    said = " ".join((caught.value.message, *caught.value.details))
    assert "No space left on device" in said and "h2" in said and "None" not in said
    assert hosts[0].sh(f"ls {root}/units 2>/dev/null || true") == "", "the cell is on both hosts"
    hosts[1].sh(f"mount -o remount,size=500M {root}")
    _, outcome = plain.deploy()
    assert outcome.exit is Exit.OK


@pytest.mark.slow
def test_a_deploy_killed_while_it_makes_the_environment_finishes(plain: Away, hosts: list[LabHost]) -> None:
    def killed() -> None:
        dies("within h2/venv")
        plain.deploy()

    child = multiprocessing.get_context("fork").Process(target=killed)
    child.start()
    child.join(120.0)
    assert child.exitcode == -signal.SIGKILL
    made, outcome = plain.deploy()
    assert outcome.exit is Exit.OK and "h2/venv" in [p.step.id for p in made.plan.pending]
    for host in hosts[:2]:
        assert host.sh("find /opt/pdctl/away -name '.?*' -not -path '*/venvs/*/*'").split() == []


# The server's end of every connection to that host.
CONNECTIONS = "kill -9 $(pgrep -f '^[s]shd: (root|ops)')"


@pytest.mark.slow
def test_a_connection_that_drops_within_a_deploy_is_said_and_the_next_one_finishes(
    plain: Away, hosts: list[LabHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    doing = Journal.doing

    @contextmanager
    def dropped(self: Journal, id: str, *more: Any, **named: Any) -> Iterator[Any]:
        with doing(self, id, *more, **named) as step:
            if id == "h2/release":
                hosts[1].sh(CONNECTIONS)
            yield step

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "doing", dropped)
        with pytest.raises(DeployFailed) as caught:
            plain.deploy()
    assert (caught.value.code, caught.value.exit) == ("connection_lost", Exit.PARTIAL)
    assert "The connection to h2 was lost while running" in caught.value.message
    assert "look at what is true there before it is repeated" in caught.value.hint
    assert [g.state for g in caught.value.outcome.groups if g.group == "cell a"] == [State.BLOCKED]
    made, outcome = plain.deploy()
    assert outcome.exit is Exit.OK and "h2/release" in [p.step.id for p in made.plan.pending]
    assert plain.deploy()[0].plan.changes == 0


def test_a_host_without_ensurepip_gets_a_pip_of_its_own_for_a_moment(
    plain: Away, hosts: list[LabHost]
) -> None:
    """Debian's python3 without python3-venv."""
    for host in hosts[:2]:
        host.sh("mv /usr/lib/python3.11/ensurepip /usr/lib/python3.11/ensurepip.away")
    try:
        _, outcome = plain.deploy()
        assert outcome.exit is Exit.OK
    finally:
        for host in hosts[:2]:
            host.sh("mv /usr/lib/python3.11/ensurepip.away /usr/lib/python3.11/ensurepip")


def test_a_small_shm_and_a_strangers_port_stop_the_cell_before_the_switch(
    plain: Away, hosts: list[LabHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdctl.flows.check.hosts.needed_dists", lambda: (["tinya", "tinyb"], []))
    plain.deploy(check=True)
    root, h2 = "/opt/pdctl/away", hosts[1]
    pid = "systemctl show -P MainPID 'pdctl-decode@*'"
    files = f"readlink {root}/current; cat {root}/units/decode-0.json; {pid}"
    before = h2.sh(files)
    plain.files["engine/x.py"] = b"2"
    plain.edit("port = 21003", "port = 21903")
    listens = "import socket,time; s=socket.create_server(('0.0.0.0',21903)); time.sleep(600)"
    h2.sh(f'systemd-run --unit=stranger --uid=dev python3 -c "{listens}"')
    h2.sh("mount -o remount,size=1M /dev/shm")
    try:
        until(lambda: h2.sh("ss -Hltn 'sport = :21903'"), what="the stranger listens")
        with pytest.raises(DeployFailed) as caught:
            plain.deploy(check=True)
    finally:
        h2.sh("systemctl stop stranger; mount -o remount,size=50% /dev/shm")
    said = [caught.value.message, *caught.value.details]
    assert "h2, shm: 1.0 MiB of 1.0 MiB free" in said[0] and caught.value.exit is Exit.FINDINGS
    assert any(line.startswith("decode-0, ports: 21903 held by pid") for line in said), said
    assert any("fix: systemctl stop stranger.service on h2" in line for line in said), said
    assert h2.sh(files) == before, "nothing of it was switched"
    states = {g.group: g.state for g in caught.value.outcome.groups}
    assert states["cell a"] is State.STOPPED and states["router"] is not State.DONE
    plain.deploy(check=True)
    assert h2.sh(f"cat {root}/current/tree/engine/x.py") == "2"


def test_a_host_that_cannot_be_reached_keeps_its_cell_back(plain: Away, lab: Lab) -> None:
    plain.deploy()
    plain.files["engine/x.py"] = b"2"
    lab.stop("h2")
    try:
        with pytest.raises(DeployFailed) as caught:
            plain.deploy()
    finally:
        lab.boot("h2")
    assert caught.value.exit is Exit.PARTIAL
    states = {g.group: g.state for g in caught.value.outcome.groups}
    assert (states["cell a"], states["router"]) == (State.BLOCKED, State.KEPT)


def test_an_index_of_the_host_s_own(
    hosts: list[LabHost], home: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's configuration on the host says where packages come from."""
    for host in hosts[:2]:
        index = host.root / "srv" / "index"
        index.mkdir(exist_ok=True)
        for wheel in wheels.iterdir():
            (index / wheel.name).write_bytes(wheel.read_bytes())
        (host.root / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /srv/index\n")
    try:
        for made in away(tmp_path / "fleet", hosts[:2], 'runtime = "index"\n', monkeypatch):
            made.deploy()
            assert not list((hosts[1].root / "opt/pdctl/away/wheels").glob("*/tiny*"))
            assert made.deploy()[0].plan.changes == 0
    finally:
        for host in hosts[:2]:
            (host.root / "etc" / "pip.conf").unlink()
