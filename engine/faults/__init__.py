"""Fault points for drills: named, counted, off unless the process was started with a drill token."""

from __future__ import annotations

import difflib
import threading
from collections import Counter
from dataclasses import dataclass

from engine.core.errors import ConfigError

POINTS: dict[str, str] = {
    "stall-transfer": "prefill: the writes of `count` rooms are held and never posted",
    "slow-transfer": "prefill: each post waits `value` seconds",
    "fail-post": "prefill: a post ends in an error behind its first write",
    "lose-want": "prefill: a Want is dropped",
    "lose-done": "prefill: a Done is not sent",
    "refuse-pages": "decode: no request is granted pages",
    "stop-steps": "prefill, decode: no batch is run, all else goes on",
    "corrupt-page": "decode: one bit of page `value` of a room is inverted after its last write",
    "swap-pages": "prefill: the first and the last page of a post are written to each other's place",
}


@dataclass
class _Armed:
    count: int
    value: float
    hits: int = 0


class Faults:
    """Armed fault points. Thread-safe; a point armed with count 0 stays armed until disarmed."""

    def __init__(self, enabled: bool = False) -> None:
        self.enabled = enabled
        self._armed: dict[str, _Armed] = {}
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    def arm(self, name: str, count: int = 0, value: float = 0.0) -> None:
        """Arm a point; ConfigError when faults are off, or the name or a number is wrong."""
        self._check(name)
        if count < 0 or not 0 <= value <= 3600:
            raise ConfigError("bad_value", f"Fault {name}: count and value must be >= 0, value <= 3600 s.")
        with self._lock:
            self._armed[name] = _Armed(count, value)

    def disarm(self, name: str) -> None:
        self._check(name)
        with self._lock:
            self._armed.pop(name, None)

    def set(self, name: str, armed: bool, count: int = 0, value: float = 0.0) -> None:
        """`arm` or `disarm`, as the admin verb says it."""
        if armed:
            self.arm(name, count, value)
        else:
            self.disarm(name)

    def armed(self, name: str) -> bool:
        """Whether the point is armed, without using it up."""
        with self._lock:
            return name in self._armed

    def take(self, name: str) -> bool:
        """Whether the point is armed now; uses up one of its count."""
        return self.take_value(name) is not None

    def take_value(self, name: str) -> float | None:
        """The armed point's value, using up one of its count; None when it is not armed."""
        with self._lock:
            armed = self._armed.get(name)
            if armed is None:
                return None
            armed.hits += 1
            self._hits[name] += 1
            if armed.hits == armed.count:
                del self._armed[name]
            return armed.value

    def document(self) -> dict[str, object]:
        """The `faults` object of /v1/state; `hits` counts every point since start, spent ones too."""
        with self._lock:
            armed = [
                {"name": n, "count": a.count, "value": a.value, "hits": a.hits}
                for n, a in sorted(self._armed.items())
            ]
            return {"enabled": self.enabled, "armed": armed, "hits": dict(self._hits)}

    def _check(self, name: str) -> None:
        if not self.enabled:
            raise ConfigError(
                "faults_disabled", "This engine takes no faults.", "Start it with PD_DRILL_TOKEN_FILE set."
            )
        if name not in POINTS:
            near = difflib.get_close_matches(name, POINTS, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(POINTS)}."
            raise ConfigError("unknown_fault", f"{name} is not a fault point.", hint)
