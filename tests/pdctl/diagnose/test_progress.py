"""A hang is told from load, from idleness and from an engine that only looks still."""

from __future__ import annotations

import pytest

from pdctl.adapters.traces import Event, Reading, Traces
from pdctl.diagnose.growth import growth
from pdctl.diagnose.lives import fatal, raised, signal_of, told
from pdctl.diagnose.progress import moves, stall, stalls

AT = 1_700_000_000.0


def seen(*rows: dict[str, float], gap: float = 10.0, source: str = "metrics", rank: str = "") -> Traces:
    start = AT - gap * (len(rows) - 1)
    return Traces(readings=tuple(Reading(start + i * gap, source, row, rank) for i, row in enumerate(rows)))


STILL = {"running": 3.0, "waiting": 0.0, "prompt_tokens_total": 90.0, "generation_tokens_total": 40.0}


def test_running_requests_without_a_token_are_a_stall() -> None:
    found = stall(seen(STILL, STILL))
    assert found is not None and (found.running, found.seconds) == (3.0, 10.0)


@pytest.mark.parametrize(
    ("change", "gap"),
    [
        ({"generation_tokens_total": 41.0}, 10.0),  # a token came
        ({"running": 0.0}, 10.0),  # nothing runs
        ({"kv_usage": 0.3}, 10.0),  # tokens are counted at the end, pages fill
        ({}, 5.0),  # not long enough
    ],
)
def test_what_is_no_stall(change: dict[str, float], gap: float) -> None:
    first = {**STILL, "kv_usage": 0.2}
    assert stall(seen(first, first)) is not None
    assert stall(seen(first, {**first, **change}, gap=gap)) is None


def test_statistics_lines_need_longer_than_counters() -> None:
    line = {"running": 3.0, "waiting": 1.0, "prompt_tps": 0.0, "generation_tps": 0.0}
    assert stall(seen(line, line, source="log")) is None
    assert stall(seen(line, line, line, source="log")) is not None
    assert stall(seen(line, line, {**line, "generation_tps": 0.1}, source="log")) is None


def test_a_rank_is_judged_by_its_own_numbers() -> None:
    other = {**STILL, "generation_tokens_total": 50.0}
    both = Traces(
        readings=(*seen(STILL, STILL, rank="DP0").readings, *seen(STILL, other, rank="DP1").readings)
    )
    assert [s.rank for s in stalls(both)] == ["DP0"]
    assert moves(both, "DP1") and not moves(both, "DP0")


def test_an_old_statistics_line_says_nothing_of_now() -> None:
    line = seen({"running": 3.0, "generation_tps": 200.0}, source="log")
    assert moves(line) and moves(line, at=AT + 30) and not moves(line, at=AT + 300)


def test_memory_that_fills_pools_after_a_start_is_no_growth() -> None:
    rows = ({"rss_bytes": 10e9}, {"rss_bytes": 20e9})
    assert growth(seen(*rows, gap=3600)) is not None
    assert growth(seen(*rows, gap=60)) is None
    traces = seen(*rows, gap=3600)
    assert growth(Traces(readings=traces.readings, started_at=AT - 3700)) is None


def event(order: int, sign: str, line: str = "", **values: str) -> Event:
    return Event(sign, "p", None, order, f"p.log:{order}", line, "", values)


def test_the_oldest_exception_of_the_last_life_is_the_cause_and_echoes_are_not() -> None:
    log = Traces(
        events=(
            event(1, "life.start"),
            event(5, "process.raised", type="OSError", message="of the life before"),
            event(10, "life.start"),
            event(18, "process.raised", type="a.b.ValueError", message="the cause"),
            event(30, "process.fatal"),
            event(31, "process.raised", type="EngineDeadError", message="EngineCore died"),
        )
    )
    cause = fatal(log)
    assert cause is not None and told(cause) == "ValueError: the cause"
    assert [told(e) for e in raised(log)][-1] == "ValueError: the cause"


@pytest.mark.parametrize(("code", "number"), [(137, 9), (-11, 11), (1, None), (0, None), (None, None)])
def test_exit_codes_are_signals_as_shells_and_supervisors_write_them(
    code: int | None, number: int | None
) -> None:
    assert signal_of(Traces(ended=code)) == number
