"""`pdctl deploy` as an operator types it, over SSH: what is shown, what is touched, what is kept.

One fleet serves the module and the tests follow one another.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.exits import Exit
from tests.hosts.lab.lab import Lab
from tests.hosts.real_fleet import ROOT, RealFleet, operated

SECRET = "s3cret-of-decode-0"
A, B = {"prefill-0", "decode-0"}, {"prefill-1", "decode-1"}


@pytest.fixture(scope="module")
def shift(lab: Lab, smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    """Two cells, deployed and serving, that keep two older deployments."""
    with operated(tmp_path_factory.mktemp("shift"), lab, smollm) as fleet:
        fleet.clear()  # what another file's fleet of that name has left
        fleet.edit("retain = 3", "retain = 2")
        fleet.done("deploy", "--yes", release="0")
        yield fleet


def restarted(fleet: RealFleet, before: dict[str, int | None]) -> set[str]:
    after = fleet.pids()
    assert all(after.values()), after
    return {name for name in after if after[name] != before[name]}


def kept(fleet: RealFleet) -> dict[str, set[str]]:
    """Host -> releases that are installed there; each has the tree that it names."""
    found = {}
    for host in fleet.lab.hosts:
        root = "/opt/pdctl/night"
        assert host.sh(f"for r in {root}/releases/*; do test -e $r/tree/engine || echo $r; done") == ""
        found[host.name] = set(host.sh(f"ls {root}/releases").split())
        trees = host.sh(f"for r in {root}/releases/*; do readlink -f $r/tree; done").split()
        assert set(host.sh(f"ls -d {root}/trees/*").split()) == set(trees), "no tree that no release has"
    return found


def test_a_plan_shows_every_host_and_no_secret_and_changes_nothing(shift: RealFleet) -> None:
    pids, there = shift.pids(), kept(shift)
    assert shift.pdctl("deploy", "--plan", "--detailed-exitcode", release="0").returncode == Exit.OK
    table = "[cells.a.engines.decode-0]\n"
    shift.edit(table, f'{table}env = {{ MY_TOKEN = "{SECRET}", MINE = "1" }}\n')
    made = shift.pdctl("deploy", "--plan", "--detailed-exitcode", release="0")
    assert made.returncode == Exit.CHANGES, made.stderr
    lines = made.stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads[:2] == ["h2", "restarts"] and heads[-1] == "3 changes", made.stdout
    assert "  + write the env file of decode-0, mode 0600" in lines, made.stdout
    assert "      MY_TOKEN: (unset) -> ***" in lines and "      MINE: (unset) -> 1" in lines
    assert "  ~ install the unit decode-0" in lines and "  ! restart cell a together" in lines
    assert SECRET not in made.stdout + made.stderr
    assert shift.pdctl("deploy", "--plan", release="0").returncode == Exit.OK
    assert (shift.pids(), kept(shift)) == (pids, there)


def test_a_secret_is_in_files_of_the_login_alone_and_in_nothing_that_is_said(shift: RealFleet) -> None:
    pids = shift.pids()
    said = shift.done("deploy", "--yes", release="0")
    assert restarted(shift, pids) == A
    run = json.loads(shift.done("history", "--json", "-n", "1"))["runs"][0]["id"]
    said += shift.done("history", run) + shift.done("history", run, "--json")
    said += shift.done("history", "--host", "h2") + shift.done("history", "--host", "h2", "--json")
    assert SECRET not in said
    h2 = shift.lab.hosts[1]
    holders = h2.sh(f"grep -rlF {SECRET} /opt/pdctl /etc /run/systemd /var/log 2>/dev/null || true").split()
    assert "/opt/pdctl/night/env/decode-0.env" in holders
    assert {h2.sh(f"stat -c %a {path}").strip() for path in holders} == {"600"}, holders
    assert SECRET not in h2.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")


@pytest.mark.parametrize("word", ["b", "h3"])
def test_a_limit_restarts_that_cell_and_asks_no_other_host_to_change(shift: RealFleet, word: str) -> None:
    pids, there = shift.pids(), kept(shift)
    shift.done("deploy", "--yes", "--limit", word, release=f"limited {word}")
    assert restarted(shift, pids) == B
    now = kept(shift)
    assert (now["h1"], now["h2"]) == (there["h1"], there["h2"]) and now["h3"] - there["h3"]
    shift.ask()
    assert {e["ready"] for e in shift.state("router")["engines"]} == {True}


def test_a_limit_that_is_nothing_gets_the_nearest_name(shift: RealFleet) -> None:
    done = shift.pdctl("deploy", "--yes", "--limit", "h33")
    assert done.returncode == Exit.USAGE and "Traceback" not in done.stderr
    assert "--limit h33: there is no such cell or host" in done.stderr and "h3" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_many_deployments_two_stay_and_what_runs_is_never_pruned(shift: RealFleet) -> None:
    """Cell b goes on alone, so that what cell a runs from becomes the oldest release of all."""
    pids, old = shift.pids(), shift.current()
    for number in range(3):
        shift.done("deploy", "--yes", "--limit", "b", release=f"b{number}")
    assert restarted(shift, pids) == B
    there = kept(shift)
    assert len(there["h3"]) == 3, there
    assert all(Path(old[host]).name in there[host] for host in ("h1", "h2")), (old, there)
    assert "Paris" in shift.ask()
    known = json.loads(shift.done("rollback", "--list", "--json"))["deployments"]
    assert len(known) == 3, known
    assert {release for found in known for release in found["releases"]} <= set().union(*there.values())
    # The oldest that is kept can be gone back to, with nothing sent.
    shift.done("rollback", known[-1]["id"], "--yes")
    assert set(shift.current().values()) == {f"releases/{r}" for r in known[-1]["releases"]}
    assert "Paris" in shift.ask()
    assert all(Path(now).name in kept(shift)[host] for host, now in shift.current().items())


def logins(fleet: RealFleet) -> dict[str, int]:
    return {h.name: int(h.sh("journalctl -q -t sshd | grep -c Accepted || true")) for h in fleet.lab.hosts}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_of_it_deployed_thrice_keeps_three_on_every_host(shift: RealFleet) -> None:
    """Each time one connection a host, for files, restarts, questions to engines and the lock."""
    used = []
    for number in range(3):
        before = logins(shift)
        shift.done("deploy", "--yes", release=f"all{number}")
        assert logins(shift) == {host: count + 1 for host, count in before.items()}
        used.append(Path(shift.current()["h1"]).name)
    assert kept(shift) == {host: set(used) for host in ("h1", "h2", "h3")}


def test_another_path_to_the_fleet_file_is_the_same_fleet(shift: RealFleet, tmp_path: Path) -> None:
    """As another operator, from a clone; by a relative path; through a link to its folder."""
    shift.done("deploy", "--yes")
    pids = shift.pids()
    clone, link, beside = tmp_path / "clone", tmp_path / "link", tmp_path / "beside"
    private = shift.fleet.paths.token.relative_to(shift.folder)
    shutil.copytree(shift.folder, clone, ignore=shutil.ignore_patterns("journal.db*", "hooks"))
    assert (clone / private).exists(), "the fleet's token is what a clone is given"
    link.symlink_to(shift.folder)
    beside.mkdir()
    for path in (clone, link, link / "fleet.toml"):
        typed = os.path.relpath(path, beside)
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pdctl", "--fleet", typed, "deploy", "--json"]
        done = subprocess.run(command, cwd=beside, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == Exit.OK, done.stdout + done.stderr
        assert json.loads(done.stdout)["changes"] == 0, (typed, done.stdout)
    assert shift.pids() == pids
