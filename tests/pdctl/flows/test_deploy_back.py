"""What fails its gate is put back, the cell is the unit, and what is true is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.deploy.gate import unready
from pdctl.flows.deploy.result import DeployFailed, Outcome, State
from tests.pdctl.flows.conftest import Bench

OLD, NEW = {"engine/__init__.py": b"1"}, {"engine/__init__.py": b"2"}


def fails(bench: Bench, *limit: str) -> tuple[DeployFailed, dict[str, tuple[State, str]]]:
    with pytest.raises(DeployFailed) as caught:
        bench.deploy(*limit)
    return caught.value, states(caught.value.outcome)


def states(outcome: Outcome) -> dict[str, tuple[State, str]]:
    return {g.group: (g.state, g.why) for g in outcome.groups}


def current(bench: Bench, host: str = "local") -> str:
    return (bench.root(host) / "current").readlink().name


@pytest.mark.parametrize("how", ["decode-0:exit=70", "decode-0:empty"])
def test_a_release_that_fails_its_gate_goes_back_by_itself(bench: Bench, how: str) -> None:
    bench.files = dict(OLD)
    bench.deploy()
    before, kept = bench.serving(), current(bench)
    router = bench.lives()["router"]
    bench.files = {**NEW, "engine/behave": how.encode()}
    error, now = fails(bench)
    assert error.exit is Exit.FINDINGS
    assert now["cell a"][0] is State.BACK
    assert "decode-0" in error.message and "Cell a is back on deployment" in error.message
    assert ("the test wants it so" in error.message) == ("exit" in how), "its own words, if it had any"
    pids = bench.lives()
    assert [line for line in error.details if not line.startswith("router")] == [
        f"{name}: running, pid {pids[name]}, ready" for name in ("prefill-0", "decode-0")
    ]
    assert "run `pdctl deploy` again" in error.hint
    assert bench.serving() == before and current(bench) == kept
    assert bench.lives()["router"] == router, "the router has nothing to do with it"
    assert unready(bench.context()) == {}
    assert bench.restarted == ["a", "a"]
    # What was put back is what the next plan sees: the bad release is still to be deployed, nothing else.
    bench.files = dict(OLD)
    assert bench.deploy().plan.changes == 0
    bench.files = dict(NEW)
    bench.deploy()
    assert set(bench.serving().values()) != set(before.values()) and unready(bench.context()) == {}


def test_a_release_that_does_not_load_is_never_switched_to(bench: Bench) -> None:
    bench.files = dict(OLD)
    bench.deploy()
    lives, kept = bench.lives(), current(bench)
    env = (bench.root() / "env" / "decode-0.env").read_text()
    bench.files = {**NEW, "engine/behave": b"unloadable"}
    bench.edit('role = "decode"', 'role = "decode"\npages = 64')
    error, now = fails(bench)
    assert "torch: ImportError: no such library" in error.details
    assert now["cell a"][0] is State.BLOCKED and error.exit is Exit.FINDINGS
    assert (bench.lives(), current(bench)) == (lives, kept)
    assert (bench.root() / "env" / "decode-0.env").read_text() == env
    assert "--pages" not in (bench.root() / "units" / "decode-0.json").read_text()


def test_a_first_deploy_that_fails_says_that_there_is_nothing_before_it(bench: Bench) -> None:
    bench.files = {**NEW, "engine/behave": b"decode-0:empty"}
    error, now = fails(bench)
    assert (error.code, error.exit) == ("canary_failed", Exit.FINDINGS)
    nothing = "There is nothing to go back to: no deployment of it is recorded."
    assert now["cell a"] == (State.FAILED, nothing)
    assert f"cell a: {nothing}" in error.details
    assert "router: left as it was (no cell serves what was deployed)" in error.details


def test_an_engine_that_was_added_goes_again_when_the_cell_goes_back(bench: Bench) -> None:
    bench.deploy()
    text = bench.path.read_text()
    taken = {p for u in bench.fleet().units() for p in u.ports}
    port = max(taken) + 1
    more = f'[cells.a.engines.decode-1]\nrole = "decode"\nhost = "local"\nport = {port}\n\n'
    bench.path.write_text(text.replace("# Clients talk", f"{more}# Clients talk"))
    bench.files = {**NEW, "engine/behave": b"decode-1:exit=70"}
    error, now = fails(bench)
    assert now["cell a"][0] is State.BACK and "decode-1" in error.message
    assert set(bench.lives()) == {"prefill-0", "decode-0", "router"}
    assert now["router"][0] is State.KEPT
    bench.path.write_text(text)
    bench.files = {"engine/__init__.py": b""}
    assert bench.deploy().plan.changes == 0


def test_a_router_that_fails_goes_back_alone(bench: Bench) -> None:
    bench.files = dict(OLD)
    bench.deploy()
    before = bench.serving()
    bench.files = {**NEW, "engine/behave": b"router:empty"}
    _, now = fails(bench)
    assert now["router"][0] is State.BACK and now["cell a"][0] is State.DONE
    after = bench.serving()
    assert after["router"] == before["router"] and after["decode-0"] != before["decode-0"]
    assert unready(bench.context()) == {}


def test_one_cell_that_fails_leaves_the_other_serving_as_it_was(two: Bench) -> None:
    two.files = dict(OLD)
    two.deploy()
    lives = two.lives()
    two.files = {**NEW, "engine/behave": b"decode-a:empty"}
    error, now = fails(two)
    assert now["cell a"][0] is State.BACK
    assert now["cell b"] == now["router"] == (State.KEPT, "cell a failed")
    after = two.lives()
    assert {n for n in lives if lives[n] != after[n]} == {"prefill-a", "decode-a"}
    assert any(line.startswith("cell b: left as it was") for line in error.details)
    assert current(two, "h1") == two.serving()["decode-a"] and current(two, "h2") == two.serving()["decode-b"]


def test_a_host_that_is_down_costs_its_own_cells(two: Bench) -> None:
    two.deploy()
    lives = two.lives()
    text = two.path.read_text()
    two.edit(
        '[hosts.h2]\ntransport = "local"\npython = "', '[hosts.h2]\ntransport = "local"\npython = "/gone'
    )
    two.files = dict(NEW)
    made = two.plan()
    assert set(made.broken) == {"h2"}
    with pytest.raises(DeployFailed) as caught:
        two.apply(made)
    assert caught.value.exit is Exit.PARTIAL
    now = states(caught.value.outcome)
    assert now["cell a"][0] is State.DONE and now["router"][0] is State.DONE
    assert now["cell b"][0] is State.BLOCKED and "/gone" in now["cell b"][1]
    two.path.write_text(text)
    after = two.lives()
    assert after["decode-a"] != lives["decode-a"] and after["decode-b"] == lives["decode-b"]
    hosts = {h.host: h.state for h in caught.value.outcome.hosts}
    assert hosts == {"h1": "ok", "h2": "not reached"}
    two.deploy()
    assert len(set(two.serving().values())) == 1


def test_without_its_router_host_nothing_is_deployed(two: Bench) -> None:
    two.edit(
        '[hosts.h1]\ntransport = "local"\npython = "', '[hosts.h1]\ntransport = "local"\npython = "/gone'
    )
    with pytest.raises(PdctlError, match="/gone"):
        two.plan()
    assert not two.root("h2").exists()


def test_a_limit_touches_nothing_else(two: Bench) -> None:
    two.files = dict(OLD)
    two.deploy()
    before = two.serving()
    two.files = dict(NEW)
    two.deploy("b")
    after = two.serving()
    assert {n for n in after if after[n] != before[n]} == {"prefill-b", "decode-b"}
    assert two.plan("h2").plan.changes == 0, "a host stands for its cells"
    assert two.plan("router").plan.changes and two.plan("a").plan.changes
    # What is out of scope is not even asked, so it may be down.
    two.edit(
        '[hosts.h2]\ntransport = "local"\npython = "', '[hosts.h2]\ntransport = "local"\npython = "/gone'
    )
    assert two.plan("a").broken == {}
    two.edit('python = "/gone', 'python = "')
    with pytest.raises(PdctlError, match="--limit c: there is no such cell or host"):
        two.plan("c")
    two.deploy()
    assert len(set(two.serving().values())) == 1


def test_what_served_is_recorded_privately_and_whole(two: Bench) -> None:
    made = two.deploy()
    found = sorted(two.root("h2").glob("deployments/*.json"))
    assert len(found) == 1 and found[0].stat().st_mode & 0o777 == 0o600
    record = json.loads(found[0].read_text())
    assert record["id"] == made.ways.author.id and set(record["units"]) == {"prefill-b", "decode-b"}
    assert record["units"]["decode-b"]["env"] == (two.root("h2") / "env/decode-b.env").read_text()
    token = two.fleet().paths.token.read_text().strip()
    assert token not in found[0].read_text()
    on_first = json.loads(next(two.root("h1").glob("deployments/*.json")).read_text())
    assert (on_first["id"], set(on_first["units"])) == (record["id"], {"prefill-a", "decode-a", "router"})


def test_old_releases_go_and_what_serves_or_may_serve_again_stays(bench: Bench) -> None:
    bench.edit("retain = 3", "retain = 1")
    used = []
    for number in range(3):
        bench.files = {"engine/__init__.py": str(number).encode()}
        bench.deploy()
        used.append(bench.serving()["router"])
    names = {kind: {p.name for p in (bench.root() / kind).iterdir()} for kind in ("releases", "trees")}
    assert names["releases"] == set(used[1:])
    assert len(names["trees"]) == 2
    assert len(list(Path(bench.root() / "deployments").iterdir())) == 2
