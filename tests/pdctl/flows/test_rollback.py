"""Going back is a deploy of what hosts recorded."""

from __future__ import annotations

import pytest

from pdctl.errors import ConfigError
from pdctl.flows.deploy.gate import unready
from pdctl.flows.deploy.kept import list_deployments
from pdctl.flows.deploy.rollback import plan_rollback
from tests.pdctl.flows.conftest import WAIT, Bench


def back(bench: Bench, id: str | None = None) -> str:
    """Roll back; the id of what was gone back to."""
    made, target = plan_rollback(bench.context(), WAIT, id, bench.restart)
    bench.apply(made)
    return target.id


def ids(bench: Bench) -> list[str]:
    return [d.id for d in list_deployments(bench.context())[0]]


def env(bench: Bench) -> str:
    return (bench.root() / "env" / "prefill-0.env").read_text()


def test_back_and_forth(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="no earlier deployment"):
        plan_rollback(bench.context(), WAIT)
    bench.files = {"engine/__init__.py": b"1"}
    bench.deploy()
    (first,) = ids(bench)
    old_env, old_release = env(bench), bench.serving()
    with pytest.raises(ConfigError, match="no earlier deployment"):
        plan_rollback(bench.context(), WAIT)
    bench.files = {"engine/__init__.py": b"2"}
    bench.edit(
        '[values.PD_RANK_TIMEOUT]\nvalue = "20"',
        '[values.PD_RANK_TIMEOUT]\nvalue = "25"',
        "profiles/default.toml",
    )
    bench.edit('role = "decode"', 'role = "decode"\npages = 64')
    bench.deploy()
    second = ids(bench)[0]
    assert ids(bench) == [second, first]
    new_release = bench.serving()

    bench.restarted.clear()
    assert back(bench) == first
    assert bench.restarted == ["a"] and unready(bench.context()) == {}
    assert env(bench) == old_env and bench.serving() == old_release
    assert "--pages" not in (bench.root() / "units" / "decode-0.json").read_text()
    known, _ = list_deployments(bench.context())
    assert known[0].what == f"rollback to {first}" and known[0].id not in (first, second)
    assert known[0].serves and known[0].also == (first,)
    made, _ = plan_rollback(bench.context(), WAIT, first, bench.restart)
    assert made.plan.changes == 0 and made.notes == (f"Deployment {first} is what serves already.",)

    assert back(bench, second) == second
    assert bench.serving() == new_release
    again = ids(bench)[0]
    assert ids(bench) == [again, known[0].id], "one that is the same as a newer one is that one"
    made, _ = plan_rollback(bench.context(), WAIT, again, bench.restart)
    assert made.plan.changes == 0, "it serves already"
    assert bench.deploy().plan.changes == 0, "and it is what the fleet file says"
    with pytest.raises(ConfigError, match="There is no deployment nope"):
        plan_rollback(bench.context(), WAIT, "nope")
    (bench.root() / "deployments" / f"{second}.json").unlink()
    with pytest.raises(ConfigError, match=f"{first} cannot be told any more: its record on local is gone"):
        plan_rollback(bench.context(), WAIT, first)


def test_back_over_a_changed_fleet(two: Bench) -> None:
    """A cell that came since goes, ports that moved move back, and the router knows all of it."""
    text = two.path.read_text()
    one, _, rest = text.partition("\n[cells.b.")
    front = rest[rest.index("\n[router]") :]
    two.path.write_text(one + front)
    two.deploy()
    port = two.fleet().engine("decode-a").port
    two.path.write_text(text.replace(f"port = {port}\n", f"port = {port + 17}\n"))
    two.deploy()
    assert set(two.lives()) == {"prefill-a", "decode-a", "router", "prefill-b", "decode-b"}
    made, _ = plan_rollback(two.context(), WAIT, None, two.restart)
    assert {p.step.id for p in made.plan.pending} >= {
        "h2/remove/prefill-b",
        "h1/start/router",
        "co-restart/a",
    }
    two.apply(made)
    assert set(two.lives()) == {"prefill-a", "decode-a", "router"}
    two.path.write_text(one + front)
    assert unready(two.context()) == {}
    assert two.deploy().plan.changes == 0


def test_one_that_was_pruned_is_refused_with_what_is_kept_and_nothing_changes(bench: Bench) -> None:
    bench.edit("retain = 3", "retain = 1")
    made = []
    for number in range(3):
        bench.files = {"engine/__init__.py": str(number).encode()}
        bench.deploy()
        made.append(ids(bench)[0])
    assert ids(bench) == [made[2], made[1]]
    pids = bench.lives()
    with pytest.raises(ConfigError, match=f"There is no deployment {made[0]}") as caught:
        back(bench, made[0])
    assert "pdctl rollback --list" in caught.value.hint and "`retain` under [fleet]" in caught.value.hint
    assert bench.lives() == pids
