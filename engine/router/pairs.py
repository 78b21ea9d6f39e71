"""The engines and which two of them serve the next request: pure data, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.core.errors import RequestError


@dataclass
class Engine:
    """One engine as configured, and what is known of it now. `bootstrap` is (host, port) of a prefill."""

    instance: str
    role: Literal["prefill", "decode"]
    cell: str
    url: str
    bootstrap: tuple[str, int] | None = None
    ready: bool = False
    cordoned: bool = False
    active: int = 0
    last_ok: float | None = None  # monotonic seconds
    asked_at: float = 0.0  # monotonic seconds: when the poll began that was answered last
    error: str | None = "not polled yet"
    incarnation: str | None = None
    turn: int = 0  # when it was last chosen, in choices

    @property
    def usable(self) -> bool:
        return self.ready and not self.cordoned


@dataclass(frozen=True)
class Pair:
    prefill: Engine
    decode: Engine


@dataclass(frozen=True)
class Failed:
    """A pair that failed a request, and when (monotonic seconds)."""

    pair: Pair
    at: float

    def shared(self, other: Pair) -> int:
        """How many engines the two pairs have in common."""
        return (self.pair.prefill is other.prefill) + (self.pair.decode is other.decode)

    def unheard(self, engine: Engine) -> bool:
        """Whether this engine was in it and has answered no poll that began since."""
        return engine in (self.pair.prefill, self.pair.decode) and engine.asked_at <= self.at


class Pairs:
    """Least load inside a cell; of equals, the prefill that has waited longest for its turn, over the edge
    of it that has: every edge is in use, so that one that does not work shows before there is a rush."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = {e.instance: e for e in engines}
        self._turn = 0
        self._turns: dict[tuple[str, str], int] = {}  # by instances: when the pair was last chosen

    def _usable(self, cell: str, role: str) -> list[Engine]:
        return [e for e in self.engines.values() if e.cell == cell and e.role == role and e.usable]

    def _pairs(self) -> list[Pair]:
        cells = dict.fromkeys(e.cell for e in self.engines.values())
        return [
            Pair(p, d) for c in cells for p in self._usable(c, "prefill") for d in self._usable(c, "decode")
        ]

    def pick(self, failed: Sequence[Failed] = ()) -> Pair | None:
        """The pair for the next request, None when no cell has both sides usable.

        For a request that `failed` before: of engines that answered since, as few of the same as can be.
        """

        def load(pair: Pair) -> tuple[int, int, int, int, int]:
            p, d = pair.prefill, pair.decode
            turn = self._turns.get((p.instance, d.instance), 0)
            shared = max((f.shared(pair) for f in failed), default=0)
            return shared, p.active + d.active, p.turn, turn, d.turn

        pairs = [
            p for p in self._pairs() if not any(f.unheard(e) for f in failed for e in (p.prefill, p.decode))
        ]
        chosen = min(pairs, key=load, default=None)
        if chosen is not None:
            self._turn += 1
            chosen.prefill.turn = chosen.decode.turn = self._turn
            self._turns[chosen.prefill.instance, chosen.decode.instance] = self._turn
        return chosen

    def another(self, failed: Sequence[Failed]) -> bool:
        """Whether a pair is usable that is none of those."""
        return any(all(f.shared(pair) < 2 for f in failed) for pair in self._pairs())

    def cordon(self, instance: str, cordoned: bool) -> Engine:
        """Keep new requests away from an engine, or let them in; RequestError for an unknown name."""
        engine = self.engines.get(instance)
        if engine is None:
            known = ", ".join(sorted(self.engines))
            message = f"There is no engine {instance} here."
            raise RequestError("unknown_engine", message, 404, f"Known: {known}.")
        engine.cordoned = cordoned
        return engine

    def missing(self) -> list[str]:
        """Why no pair can be picked, one sentence for each cell; empty when one can."""
        reasons = []
        for cell in dict.fromkeys(e.cell for e in self.engines.values()):
            lacking = [r for r in ("prefill", "decode") if not self._usable(cell, r)]
            if not lacking:
                return []
            reasons.append(f"cell {cell} has no usable {' and no usable '.join(lacking)}")
        return reasons or ["no engine is configured"]
