"""The engines and which two of them serve the next request: pure data, no I/O."""

from __future__ import annotations

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


class Pairs:
    """Least load inside a cell; of equals, the one that has waited longest for its turn."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = {e.instance: e for e in engines}
        self._turn = 0

    def _least(self, cell: str, role: str) -> Engine | None:
        usable = [e for e in self.engines.values() if e.cell == cell and e.role == role and e.usable]
        return min(usable, key=lambda e: (e.active, e.turn), default=None)

    def pick(self) -> Pair | None:
        """The pair for the next request, None when no cell has both sides usable."""
        pairs: list[Pair] = []
        for cell in dict.fromkeys(e.cell for e in self.engines.values()):
            prefill, decode = self._least(cell, "prefill"), self._least(cell, "decode")
            if prefill is not None and decode is not None:
                pairs.append(Pair(prefill, decode))
        chosen = min(
            pairs,
            key=lambda p: (p.prefill.active + p.decode.active, p.prefill.turn + p.decode.turn),
            default=None,
        )
        if chosen is not None:
            self._turn += 1
            chosen.prefill.turn = chosen.decode.turn = self._turn
        return chosen

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
            lacking = [r for r in ("prefill", "decode") if self._least(cell, r) is None]
            if not lacking:
                return []
            reasons.append(f"cell {cell} has no usable {' and no usable '.join(lacking)}")
        return reasons or ["no engine is configured"]
