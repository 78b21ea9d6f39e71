"""Host memory of a process over time, and what it grows with; pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from pdctl.adapters.traces import Traces
from pdctl.diagnose.words import span

_GIB = 1 << 30
_SHARE, _LEAST = 0.1, 0.25 * _GIB  # growth that is neither noise nor a warm-up
_WORK = ("finished_total", "requests_total", "generation_tokens_total", "prompt_tokens_total")


@dataclass(frozen=True)
class Growth:
    """Bytes from the first reading to the last. `with_work`: it grew between readings that finished work."""

    first: float
    last: float
    seconds: float
    since: float | None
    with_work: bool

    @property
    def told(self) -> str:
        return f"{self.first / _GIB:.1f} to {self.last / _GIB:.1f} GiB in {span(self.seconds)}"


def growth(traces: Traces) -> Growth | None:
    """None when it does not grow, or not for long: an engine that has just started fills its pools."""
    points = [(at, v) for at, v in traces.numbers("rss_bytes") if at is not None]
    if len(points) < 2:
        return None
    (begin, first), (end, last) = points[0], points[-1]
    values = [v for _, v in points]
    steady = all(b >= a * 0.98 for a, b in pairwise(values))
    if last - first < max(_LEAST, _SHARE * first) or not steady or end - begin < 600:
        return None
    if traces.started_at is not None and begin - traces.started_at < 600:
        return None
    work = any((traces.moved(name) or 0) > 0 for name in _WORK)
    return Growth(first, last, end - begin, begin, work)
