"""What an engine's numbers say: at its cap, idle, frozen, growing; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pdctl.adapters.traces import Traces

FULL = 0.9  # share of KV pages from which a pool is called full
_FRESH = 60.0  # an older rate says nothing of now
Series = Sequence[tuple[float | None, float]]


def values(traces: Traces, name: str, rank: str = "") -> list[float]:
    return [value for _, value in traces.numbers(name, rank)]


def number(text: str | None) -> float | None:
    """A setting as a number, None when it is none."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def cap(traces: Traces) -> float | None:
    """How many requests it may compute at a time, as it was started."""
    return number(traces.settings.get("max_running") or traces.settings.get("max_batch_size"))


def at_cap(traces: Traces) -> str:
    """Why it has no place for another request, "" when it has or nobody knows."""
    running, usage, most = traces.last("running"), traces.last("kv_usage"), cap(traces)
    if most and running is not None and running >= most:
        return f"{running:.0f} running of {most:.0f} allowed"
    if usage is not None and usage >= FULL and running:
        return f"KV {usage:.0%} in use with {running:.0f} running"
    return ""


def at_work(traces: Traces) -> bool:
    """Tokens come out of it."""
    moved = [traces.moved(n) for n in ("generation_tokens_total", "prompt_tokens_total", "finished_total")]
    if any(m is not None for m in moved):
        return any(m is not None and m > 0 for m in moved)
    newest = max((r.at for r in traces.readings if r.at is not None), default=0.0)
    rates = [traces.numbers(n)[-1:] for n in ("generation_tps", "prompt_tps")]
    # A rate without a time is of the log; where others have times, it is older than they.
    fresh = [rate for pair in rates for at, rate in pair if (newest - at <= _FRESH if at else not newest)]
    return any(rate > 0 for rate in fresh)


def idle(traces: Traces) -> bool:
    """It says that it computes nothing; False when it says nothing."""
    running = traces.last("running")
    return running is not None and running == 0 and not at_work(traces)


def stands(traces: Traces, name: str, rank: str = "") -> float:
    """Seconds for which a number above zero has had its present value, over two readings or more; else 0."""
    found = traces.numbers(name, rank)
    tail = found[-1:]
    for at, value in reversed(found[:-1]):
        if value != found[-1][1]:
            break
        tail.insert(0, (at, value))
    times = [at for at, _ in tail if at is not None]
    if len(tail) < 2 or tail[-1][1] <= 0 or not times:
        return 0.0
    return max(times) - min(times)


def grows(found: Sequence[float], factor: float = 1.5) -> bool:
    """Three values or more that end at their highest, well above where they began, with few steps down."""
    if len(found) < 3 or found[-1] < max(found) or found[-1] <= factor * max(found[0], 1.0):
        return False
    down = sum(b < a for a, b in pairwise(found))
    return down <= len(found) // 4
