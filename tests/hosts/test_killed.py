"""Real deploys over SSH that are killed and run again, and one that is taken back.

The first two tests follow one another. The slow ones have every step at which a deploy can die.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.flows.co_restart.states import ORDER, Stage
from tests.hosts.lab.lab import Lab
from tests.hosts.real_fleet import RealFleet, operated

STAGES = [stage.name.lower() for stage in ORDER if stage is not Stage.DONE]
# One of each kind of step that a change of code and of a value has.
POINTS = [
    "within h1/release",
    "behind h2/release",
    "within preflight/cell a",
    "within h1/current",
    "within h2/env/decode-0",
    "within h2/unit/decode-0",
    "at co-restart/a",
    *(f"at a/{stage}" for stage in STAGES),
    "within a/stop_decode",
    "within a/start_decode",
    "within canary/prefill-0 -> decode-0",
    "within h1/record/cell a",
    "within h1/start/router",
    "within h2/prune",
]


@pytest.fixture(scope="module")
def day(lab: Lab, smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    """One cell over h1 and h2, not deployed yet."""
    with operated(tmp_path_factory.mktemp("day"), lab, smollm, cells=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def standing(day: RealFleet) -> RealFleet:
    """It is deployed: by this, and then by whoever left it whole."""
    day.done("deploy", "--yes", release="before")
    return day


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_deploy_killed_on_its_way_is_run_again_and_finishes(day: RealFleet) -> None:
    """While it sends, between the switch and the start, and in the midst of a co-restart."""
    day.done("deploy", "--yes")
    old = day.current()
    day.killed("within h2/release", "new")
    assert day.current() == old and "Paris" in day.ask()
    day.killed("at co-restart/a", "new")
    assert day.current() != old and "Paris" in day.ask(), "what runs is the old one"
    day.killed("at a/start_prefill", "new")
    day.done("resume", day.last_run()["id"], "--yes", release="new")
    assert day.last_run()["steps"][0]["what"].startswith("took over the lock of a run that is dead")
    assert "Paris" in day.ask()
    now = day.current()
    assert not set(now.values()) & set(old.values()) and len(set(now.values())) == 1
    day.until(lambda: not day.strays(), "nothing is left of the runs that died", 20.0)
    assert json.loads(day.done("lock", "status", "--json"))["state"] == "free"


def test_a_rollback_goes_back_on_every_host_and_what_comes_after_is_right(day: RealFleet) -> None:
    day.done("deploy", "--yes")
    day.done("deploy", "--yes", release="new")
    new, pids, lives = day.current(), day.pids(), day.incarnations()
    target = json.loads(day.done("rollback", "--list", "--json"))["deployments"][1]
    said = day.done("rollback", "--yes", "--json")
    assert json.loads(said)["applied"] is True, said
    old = day.current()
    assert set(old.values()) == {f"releases/{r}" for r in target["releases"]}
    assert all(old[host] != new[host] for host in new)
    assert all(old_pid != pids[name] for name, old_pid in day.pids().items())
    now = day.incarnations()
    assert all(now[name] != lives[name] for name in lives), "both sides of each cell are new lives"
    assert "Paris" in day.ask()
    run = day.last_run()
    assert (run["command"], run["state"]) == ("rollback", "done")
    steps = {step["id"]: step["state"] for step in run["steps"]}
    assert {"h1/current", "h2/current", "h1/start/router", "co-restart/a"} <= steps.keys()
    assert set(steps.values()) == {"done"}
    assert json.loads(day.done("deploy", "--json"))["changes"] == 0, "it is what the fleet file says"
    known = json.loads(day.done("rollback", "--list", "--json"))["deployments"]
    assert known[0]["what"] == f"rollback to {target['id']}"
    plan = json.loads(day.done("rollback", "--plan", "--json"))
    again = {step["id"] for step in plan["steps"]}
    assert again >= {"h1/current", "co-restart/a"}, "and forth again"


def killed_everywhere(day: RealFleet, release: str) -> list[str]:
    """Deploy until one run gets through; the kinds of steps behind which one was killed."""
    seen = day.folder / f"seen {release}"
    for _ in range(60):
        done = day.pdctl("deploy", "--yes", release=release, dies=f"next {seen}")
        assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
        lock = json.loads(day.done("lock", "status", "--json"))["state"]
        if done.returncode == 0:
            assert lock == "free"
            return seen.read_text().splitlines()
        assert lock == "stale" and day.last_run()["state"] == "died"
    raise AssertionError("it never ended")


def whole(day: RealFleet, release: str) -> None:
    assert "Paris" in day.ask()
    day.until(lambda: not day.strays(), f"nothing is left behind: {day.strays()}", 20.0)
    assert json.loads(day.done("deploy", "--json", release=release))["changes"] == 0
    serving = {e["instance"]: e["ready"] for e in day.state("router")["engines"]}
    assert serving == {"prefill-0": True, "decode-0": True}
    assert day.state("router")["admission"] == "open"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_behind_every_kind_of_step_of_a_first_deploy(day: RealFleet) -> None:
    day.clear()
    assert set(killed_everywhere(day, "first")) >= {
        *("release", "preflight/cell a", "current", "fleet-token", "env/engine", "unit/engine"),
        *("start/engine", "canary/engine -> engine", "record/cell a", "start/router"),
    }
    whole(day, "first")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_behind_every_kind_of_step_of_a_change(standing: RealFleet) -> None:
    seen = set(killed_everywhere(standing, "second"))
    # Who dies behind the router's own resume has ended the co-restart: nobody comes to the end of that stage.
    stages = {f"a/{stage}" for stage in STAGES if stage != "resume"}
    assert seen >= {"release", "current", "admin/resume/router", *stages}
    whole(standing, "second")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", POINTS)
def test_the_next_deploy_finishes(standing: RealFleet, point: str) -> None:
    """Of a change of code and of one value."""
    day, release = standing, f"killed {point}"
    file = day.folder / "fleet.toml"
    table = r"(?m)^(\[cells\.a\.engines\.decode-0\])(\nenv = .*)?$"
    text = file.read_text()
    file.write_text(re.sub(table, rf'\1\nenv = {{ POINT = "{POINTS.index(point)}" }}', text))
    day.killed(point, release)
    day.done("deploy", "--yes", release=release)
    whole(day, release)
