"""What a leader counts: ends of requests, tokens, and the dwell times of the inflight queue."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

DWELL_BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0)
RECENT = 512


@dataclass
class Dwell:
    """Seconds between the end of a prefill and its handover, by outcome."""

    counts: list[int] = field(default_factory=lambda: [0] * len(DWELL_BOUNDS))
    total: int = 0
    seconds: float = 0.0
    recent: deque[tuple[float, float, str]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, unix: float, seconds: float, outcome: str) -> None:
        self.total += 1
        self.seconds += seconds
        self.recent.append((round(unix, 3), round(seconds, 6), outcome))
        for index, bound in enumerate(DWELL_BOUNDS):
            self.counts[index] += seconds <= bound

    def document(self) -> dict[str, object]:
        return {
            "le": list(DWELL_BOUNDS),
            "counts": list(self.counts),
            "total": self.total,
            "sum": self.seconds,
            "recent": [list(entry) for entry in self.recent],
        }


@dataclass
class Counters:
    received: int = 0
    done: int = 0
    aborted: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    tokens_generated: int = 0
    tokens_prefilled: int = 0
    dwell: Dwell = field(default_factory=Dwell)

    def end(self, outcome: str, code: str) -> None:
        """Count one end: outcome is done, failed or aborted."""
        if outcome == "done":
            self.done += 1
        elif outcome == "aborted":
            self.aborted += 1
        else:
            self.failed[code] += 1

    def document(self) -> dict[str, object]:
        return {
            "requests_received": self.received,
            "requests_done": self.done,
            "requests_aborted": self.aborted,
            "requests_failed": dict(self.failed),
        }
