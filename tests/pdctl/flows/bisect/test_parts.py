"""The order of differences, and the check that is a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.errors import ConfigError
from pdctl.fleet.catalogue import deadline_order, known
from pdctl.fleet.chain import chain_problems
from pdctl.fleet.load import load_fleet
from pdctl.flows.bisect.checks import CommandCheck, prompts
from pdctl.flows.bisect.differences import Difference, compare, in_order
from pdctl.flows.bisect.search import Verdict
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet
from tests.pdctl.models import model_folder

DEADLINES = sorted({name for inner, outer, _ in deadline_order() for name in (inner, outer)})


def chained(draw: st.DrawFn) -> dict[str, float]:
    """Deadlines in order, by numbers drawn anyhow."""
    numbers = sorted(draw(st.lists(st.integers(1, 600), min_size=len(DEADLINES), max_size=len(DEADLINES))))
    depth = dict.fromkeys(DEADLINES, 0)
    for _ in DEADLINES:
        for inner, outer, _why in deadline_order():
            depth[outer] = max(depth[outer], depth[inner] + 1)
    ranked = sorted(DEADLINES, key=lambda name: depth[name])
    return {name: float(n + 1000 * depth[name]) for name, n in zip(ranked, numbers, strict=True)}


@given(st.data())
def test_every_prefix_of_two_profiles_in_order_is_in_order(data: st.DataObject) -> None:
    """So that mixes of the search for one value start, as both profiles do."""
    scale = data.draw(st.sampled_from([0.1, 1.0, 3.0]))
    good = data.draw(st.composite(chained)())
    bad = {name: value * scale for name, value in data.draw(st.composite(chained)()).items()}
    differences = in_order(
        Difference(name, f"{good[name]:g}", f"{bad[name]:g}", "", "", ("a",), True) for name in DEADLINES
    )
    for count in range(len(differences) + 1):
        mixed = good | {d.env: bad[d.env] for d in differences[:count]}
        assert chain_problems(mixed) == [], [d.env for d in differences]


def test_live_values_come_before_those_that_need_a_restart() -> None:
    rows = [Difference(name, "1", "2", "", "", ("a",), known()[name].live) for name in sorted(known())]
    order = [d.live for d in in_order(rows)]
    assert order == sorted(order, reverse=True) and not all(order)


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    model_folder(tmp_path / "model")
    init_fleet(tmp_path / "fleet.toml", Wanted("test", str(tmp_path / "model")))
    return Context(load_fleet(tmp_path / "fleet.toml"))


def test_what_is_not_tried_is_named(ctx: Context) -> None:
    folder = ctx.fleet.paths.profiles
    text = 'schema = 1\nname = "{name}"\nextends = "default"\n'
    rows = (("PD_QUEUE_TIMEOUT", "310", "both"), ("HF_TOKEN", "hf_" + "a" * 20, "both"))
    for name, values in (("idle", ()), ("noon", rows)):
        body = "".join(f'[values.{e}]\nvalue = "{v}"\nside = "{s}"\nreason = "r"\n' for e, v, s in values)
        (folder / f"{name}.toml").write_text(text.format(name=name) + body)
    ctx.fleet.path.write_text(
        ctx.fleet.path.read_text().replace(
            'role = "decode"', 'role = "decode"\nenv = { PD_QUEUE_TIMEOUT = "9" }'
        )
    )
    found = compare(load_fleet(ctx.fleet.path), "idle", "noon")
    assert [(d.env, d.units) for d in found.differences] == [("PD_QUEUE_TIMEOUT", ("prefill-0",))]
    assert found.secret == ("HF_TOKEN",)
    with pytest.raises(ConfigError) as caught:
        compare(ctx.fleet, "idle", "default")
    assert caught.value.code == "no_difference"


@pytest.mark.parametrize(
    ("command", "verdict", "said"),
    [
        ("echo well; exit 0", Verdict.GOOD, "exit 0: well"),
        ("echo hm; exit 125", Verdict.UNKNOWN, "exit 125: hm"),
        ("echo out; echo no >&2; exit 1", Verdict.BAD, "exit 1: no"),
        ("kill -9 $$", Verdict.BAD, "exit -9"),
        ("sleep 60", Verdict.BAD, "it did not end in 0.5 s"),
        ('test -f "$PDCTL_FLEET" && test -n "$PDCTL_ROUTER" -a -n "$PDCTL_MODEL"', Verdict.GOOD, "exit 0"),
    ],
)
def test_a_command_is_judged_by_its_exit_code(
    ctx: Context, command: str, verdict: Verdict, said: str
) -> None:
    found = CommandCheck(command, 0.5 if "sleep" in command else 30.0).run(ctx)
    assert (found.verdict, found.detail) == (verdict, said)


@pytest.mark.parametrize("command", ["/no/such/thing", "/etc/passwd"])
def test_a_command_that_cannot_be_run_is_no_verdict(ctx: Context, command: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CommandCheck(command, 30.0).run(ctx)
    assert caught.value.code == "bad_check"


def test_prompts_of_the_token_check_are_short_and_as_long_as_asked() -> None:
    sizes = {name: len(text) for name, text in prompts(1024).items()}
    assert sum(n < 100 for n in sizes.values()) == 3 and sizes["long-1024"] > 1.8 * sizes["long-512"] > 3000
