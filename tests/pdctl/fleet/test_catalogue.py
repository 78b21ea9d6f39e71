"""The catalogue: every row is whole, every default is a value, every name that is spoken of exists."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.args import parser
from pdctl.fleet.catalogue import known, read
from pdctl.fleet.catalogue.find import find
from pdctl.fleet.catalogue.read import FAMILIES, Family, family
from pdctl.fleet.catalogue.risk import Held, Risk
from pdctl.fleet.catalogue.timeouts import deadlines, orders
from pdctl.fleet.catalogue.variable import NUMBERS, READS, TYPES, Variable
from pdctl.fleet.check.finding import LEVELS

ALL: list[Family] = [family(name) for name in FAMILIES]
ROWS: list[tuple[Family, Variable]] = [
    (f, row) for f in ALL for row in (*f.variables.values(), *f.arguments.values())
]
KINDS = {"bundled", "sglang", "vllm", "sglang-router"}
KEYS = {row.key for _, row in ROWS}


@pytest.mark.parametrize(("of", "row"), ROWS, ids=[row.key for _, row in ROWS])
def test_a_row_is_whole(of: Family, row: Variable) -> None:
    assert row.type in TYPES and row.read in READS and row.side in ("prefill", "decode", "both", "router")
    assert row.does.endswith(".") and row.wrong.endswith(".") and row.source
    assert row.key.startswith("--" if row.key in of.arguments else FAMILIES[of.name])
    assert bool(row.choices) == (row.type == "choice")
    assert (row.low is None and row.high is None) or row.type in NUMBERS or of.name == "engine"
    if row.low is not None and row.high is not None:
        assert row.low <= row.high
    if row.default_text:
        assert row.problem(row.default_text) == "", "the default is no value"


def test_no_name_stands_twice_and_every_name_is_spelled_as_its_readers_spell_it() -> None:
    variables = [key for f in ALL for key in f.variables]
    assert len(variables) == len(set(variables))
    for f in ALL:
        if f.names is not None and f.name != "engine":
            listed = read._names(f"{f.name}.names")
            assert {key for key, row in f.variables.items() if not row.fork} <= listed, f.name
            assert all(name.startswith(FAMILIES[f.name]) for name in listed)


@given(st.sampled_from([r for _, r in ROWS if r.type in NUMBERS and r.low is not None]), st.data())
def test_the_range_holds_at_both_ends(row: Variable, data: st.DataObject) -> None:
    assert row.low is not None
    whole = row.whole or row.type in ("count", "port")
    low, high = row.low, row.high if row.high is not None else 1e9
    inside = data.draw(st.integers(math.ceil(low), int(high)) if whole else st.floats(low, high))
    assert row.problem(repr(inside)) == ""
    assert row.problem(repr(row.low - 1)) != ""
    assert row.high is None or row.problem(repr(row.high + 1)) != ""
    assert row.problem("") != "" and row.problem("soon") != ""


def test_risks_and_timeouts_speak_of_rows_that_exist() -> None:
    for risk in (risk for f in ALL for risk in f.risks):
        spoken = {
            risk.name,
            *risk.with_,
            *([risk.lacks] if risk.lacks else []),
            *([risk.also] * bool(risk.also)),
        }
        assert spoken <= KEYS and risk.level in LEVELS
        assert risk.given or risk.is_ or risk.contains or risk.lacks or risk.above is not None, risk.name
    for deadline in deadlines().values():
        assert {*deadline.names, *deadline.absent} == KINDS and not {*deadline.names} & {*deadline.absent}
        assert {name for names in deadline.names.values() for name in names} <= KEYS
    assert {name for order in orders() for name in (order.inner, order.outer)} <= set(deadlines())
    assert list(deadlines()) == [
        *("connect", "handshake", "prealloc", "transfer", "inflight", "drain"),
        *("router_total", "router_idle", "client"),
    ]


def test_the_arguments_of_the_bundled_engine_are_its_own() -> None:
    own = {option: a for a in parser()._actions for option in a.option_strings}
    for flag, row in family("engine").arguments.items():
        assert flag in own
        assert tuple(own[flag].choices or ()) == row.choices
        if row.default is not None:
            assert str(own[flag].default) == row.default_text


def test_only_the_file_that_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    text = read.shipped_text
    monkeypatch.setattr(read, "shipped_text", lambda p, n: asked.append(n) or text(p, n))
    read.family.cache_clear()
    read.document.cache_clear()
    assert known() and known() and asked == ["catalogue/engine.toml"]
    assert find("UCX_TLS") is not None and asked[1:] == ["catalogue/ucx.toml", "catalogue/ucx.names"]
    assert find("HF_HOME") is None


@pytest.mark.parametrize(
    ("risk", "given", "holds"),
    [
        (Risk("A", "error", "", "", is_=("512",)), {"A": "512"}, True),
        (Risk("A", "error", "", "", is_=("512",)), {"A": "256"}, False),
        (Risk("A", "error", "", "", is_=("512",)), {"A": "0512.0"}, True),
        (Risk("A", "error", "", "", above=160.0), {"A": "161"}, True),
        (Risk("A", "error", "", "", above=160.0), {"A": "160"}, False),
        (Risk("A", "error", "", "", above=160.0), {"A": "many"}, False),
        (Risk("A", "error", "", "", given=True), {}, False),
        (Risk("A", "error", "", "", is_=("true",)), {}, True),
        (Risk("A", "error", "", "", is_=("true",), with_={"B": ("1",)}), {"B": "1"}, True),
        (Risk("A", "error", "", "", is_=("true",), with_={"B": ("1",)}), {"A": "true"}, False),
        (Risk("A", "error", "", "", contains='"x": "none"'), {"A": '{"x":"none"}'}, True),
        (Risk("B", "error", "", "", lacks="B"), {}, True),
        (Risk("B", "error", "", "", lacks="B"), {"B": "1"}, False),
        (Risk("A", "error", "", "", given=True, also="B"), {"A": "1"}, False),
        (Risk("A", "error", "", "", given=True, roles=("decode",)), {"A": "1"}, False),
        (Risk("A", "error", "", "", given=True, across_hosts=True), {"A": "1"}, False),
    ],
)
def test_the_conditions_of_a_risk_hold_together(risk: Risk, given: dict[str, str], holds: bool) -> None:
    """A default counts where nothing is set."""
    assert risk.holds(Held("prefill", given, {"A": "true"})) is holds
