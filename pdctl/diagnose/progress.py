"""Whether a server that holds work gets on with it: its token counters and its own statistics; pure.

A status page, a health check and a busy GPU are no progress; tokens are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.adapters.traces import Reading, Traces
from pdctl.diagnose.words import span

COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "finished_total")
HELD = ("running", "waiting", "queue_bootstrap", "queue_inflight", "queue_prealloc", "queue_transfer")
GAUGES = ("kv_usage", "kv_used_tokens", "kv_available_tokens", "generation_tps", "prompt_tps")
RATES = ("prompt_tps", "generation_tps")
STILL = 10.0  # seconds without a token, by its counters, that no healthy step lasts
OLD = 60.0  # seconds after which a statistics line says nothing of now
SILENT = 20.0  # the same by statistics lines, which average over 10 s and leave a long prefill out


@dataclass(frozen=True)
class Stall:
    """`running` requests (0: it only has `waiting` ones) saw no token for `seconds`, since `since`."""

    running: float
    waiting: float
    seconds: float
    since: float | None
    rank: str = ""

    @property
    def told(self) -> str:
        who = f"{self.rank}: " if self.rank else ""
        return f"{who}running {self.running:g}, waiting {self.waiting:g}, no token for {span(self.seconds)}"


def stall(traces: Traces, rank: str = "") -> Stall | None:
    """The stall at the end of what was read, by counters first; None while it moves or holds nothing."""
    mine = [r for r in traces.readings if r.rank == rank]
    rated = [r for r in mine if any(name in r.numbers for name in RATES)]
    return _by_counters(mine) or (None if _moved(mine) else _by_rates(rated))


def stalls(traces: Traces) -> list[Stall]:
    """Of each rank that has numbers of its own."""
    return [found for rank in traces.ranks if (found := stall(traces, rank)) is not None]


def _moved(readings: list[Reading]) -> bool:
    return any(_grew(readings, name) for name in COUNTERS)


def _grew(readings: list[Reading], name: str) -> bool:
    values = [r.numbers[name] for r in readings if name in r.numbers]
    return len(values) > 1 and values[-1] != values[0]


def moves(traces: Traces, rank: str = "", at: float | None = None) -> bool:
    """Whether tokens came while it was looked at; by its last statistics line where it shows no counters.

    With `at`, an old line shows nothing: some engines print nothing at all while they hang.
    """
    mine = [r for r in traces.readings if r.rank == rank]
    rated = [r for r in mine if any(name in r.numbers for name in RATES)]
    if at is not None:
        rated = [r for r in rated if r.at is None or r.at >= at - OLD]
    return _moved(mine) or (bool(rated) and any(rated[-1].numbers.get(name, 0.0) > 0 for name in RATES))


def stands(traces: Traces, at: float) -> bool:
    """Nothing speaks against a hang: no token came, and it is not known to be without work."""
    held = [traces.last(name) for name in HELD]
    return not moves(traces, at=at) and (all(v is None for v in held) or any(held))


def _held(reading: Reading) -> tuple[float, float]:
    return reading.numbers.get("running", 0.0), reading.numbers.get("waiting", 0.0)


def _by_counters(readings: list[Reading]) -> Stall | None:
    """Counters that stand still over the readings at the end that hold work."""
    counted = [r for r in readings if _counts(r)]
    if len(counted) < 2 or not any(_held(counted[-1])):
        return None
    tail = [counted[-1]]
    for reading in reversed(counted[:-1]):
        same = all(_same(reading, tail[0], name) for name in (*COUNTERS, *GAUGES))
        if not same or not any(_held(reading)):
            break
        tail.insert(0, reading)
    return _of(tail, STILL)


def _counts(reading: Reading) -> bool:
    """Prompt tokens alone show nothing: a decode computes none."""
    prompt, generated, finished = (name in reading.numbers for name in COUNTERS)
    return generated or (prompt and finished)


def _same(one: Reading, other: Reading, name: str) -> bool:
    """A gauge that moved shows work too: some engines count a request's tokens when it is finished."""
    if name in COUNTERS or (name in one.numbers and name in other.numbers):
        return one.numbers.get(name) == other.numbers.get(name)
    return True


def _by_rates(readings: list[Reading]) -> Stall | None:
    """Statistics lines at the end that say nothing was computed."""
    tail: list[Reading] = []
    for reading in reversed(readings):
        rates = [reading.numbers[name] for name in RATES if name in reading.numbers]
        if not rates or any(rates) or not any(_held(reading)):
            break
        tail.insert(0, reading)
    return _of(tail, SILENT)


def _of(tail: list[Reading], least: float) -> Stall | None:
    first, last = (tail[0], tail[-1]) if len(tail) > 1 else (None, None)
    if first is None or last is None or first.at is None or last.at is None:
        return None
    seconds = last.at - first.at
    running, waiting = _held(last)
    # What only waits may wait for KV or for a place: that takes longer before it says anything.
    enough = least if running else 3 * SILENT
    return Stall(running, waiting, seconds, first.at, last.rank) if seconds >= enough else None
