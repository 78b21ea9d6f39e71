"""A cell that comes later: the running router is told of it, or it is said that nothing reaches it."""

from __future__ import annotations

import pytest

from pdctl.__main__ import main
from pdctl.exits import Exit
from pdctl.flows import admin
from pdctl.flows.co_restart.hold import Admissions
from pdctl.flows.deploy.kept import list_deployments
from pdctl.flows.deploy.rollback import plan_rollback
from tests.pdctl.flows.conftest import WAIT, Bench

B = {"prefill-b", "decode-b"}


@pytest.fixture
def later(two: Bench) -> Bench:
    """Cell a serves; the fleet file has got cell b since."""
    whole = two.path.read_text()
    start, end = whole.index("[cells.b.engines"), whole.index("[router]")
    two.path.write_text(whole[:start] + whole[end:])
    two.deploy()
    two.path.write_text(whole)
    return two


def told(bench: Bench) -> dict[str, bool]:
    """Engines that the running router was given -> cordoned."""
    ctx = bench.context()
    return {
        e["instance"]: e["cordoned"] for e in admin.get(ctx, ctx.fleet.router.url, "/v1/state")["engines"]
    }


def test_a_limited_deploy_of_a_new_cell_takes_the_router_along(
    later: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    before = later.lives()
    assert main(["--fleet", str(later.path), "deploy", "--limit", "b", "--no-check", "--plan"]) == Exit.OK
    planned = capsys.readouterr().out
    assert "! restart router" in planned and "router: learns of cell b" in planned
    assert later.lives() == before and not B & told(later).keys()
    made = later.deploy("b")
    assert [g.key for g in made.groups] == ["cell b", "router"]
    assert told(later).keys() >= B
    after = later.lives()
    assert {n for n in before if after[n] != before[n]} == {"router"}
    assert later.plan().plan.changes == 0 and [g.key for g in later.plan("b").groups] == ["cell b"]
    port = later.fleet().engine("prefill-b").port
    later.edit(f"port = {port}", f"port = {later.fleet().router.port + 1}")
    assert [g.key for g in later.plan("b").groups] == ["cell b", "router"], "it knows the cell elsewhere"
    assert [g.key for g in later.plan("a").groups] == ["cell a"]


def test_a_limited_rollback_tells_the_router_where_the_cell_was(two: Bench) -> None:
    two.deploy()
    (first,) = [d.id for d in list_deployments(two.context())[0]]
    old = two.fleet().engine("prefill-b").port
    new = two.fleet().router.port + 1
    two.edit(f"port = {old}", f"port = {new}")
    two.deploy("b")
    made, _ = plan_rollback(two.context(), WAIT, first, two.restart, limit=["b"])
    assert [g.key for g in made.groups] == ["cell b", "router"]
    assert "router: learns of cell b, so it is deployed to along with it" in made.notes
    assert "router" not in "".join(
        g.key for g in plan_rollback(two.context(), WAIT, first, two.restart, limit=["a"])[0].groups
    )
    two.apply(made)
    argv = (two.root("h1") / "units" / "router.json").read_text()
    assert f":{old}" in argv and f":{new}" not in argv


def test_a_limited_deploy_without_a_router_does_not_say_that_it_serves(
    two: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--fleet", str(two.path), "deploy", "--limit", "b", "--no-check"]) == Exit.OK
    last = capsys.readouterr().out.splitlines()[-1]
    assert "the router serves" not in last
    assert "router does not run, so nothing is served until `pdctl deploy --limit router`" in last


def test_there_is_nothing_to_hold_of_a_cell_that_the_router_does_not_know(later: Bench) -> None:
    ctx = later.context()
    admissions = Admissions(ctx, ctx.fleet.cells["b"], alone=False, notes=[])
    admissions.hold(5.0)
    assert (admissions.unknown, set(told(later).values())) == (B, {False})
    admissions.resume(5.0)
    known = Admissions(ctx, ctx.fleet.cells["a"], alone=False, notes=[])
    known.hold(5.0)
    assert (known.unknown, set(told(later).values())) == (set(), {True})
    assert known.take_back(5.0) and set(told(later).values()) == {False}
    admin.post(ctx, ctx.fleet.router.url, "cordon", {"engine": "decode-a", "cordoned": True})
    again = Admissions(ctx, ctx.fleet.cells["a"], alone=False, notes=[])
    again.hold(5.0)
    assert told(later) == {"prefill-a": True, "decode-a": True}
    again.take_back(5.0)
    assert told(later) == {"prefill-a": False, "decode-a": True}, "it was cordoned before"
