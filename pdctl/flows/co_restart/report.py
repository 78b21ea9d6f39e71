"""What a co-restart did, cell by cell; plain values for the terminal and for --json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pdctl.exits import Exit
from pdctl.flows.co_restart.states import Event, Machine, Stage
from pdctl.flows.edge_canary import Canary


@dataclass(frozen=True)
class Start:
    """One engine's own start: seconds from its start to its first answer, and to ready."""

    engine: str
    answered_s: float
    ready_s: float | None
    incarnation: str
    was: str | None


@dataclass(frozen=True)
class CellReport:
    """`out_of_service_s` counts from hold to resume, None while still held.

    `routed` is False when no router ran: the engines are new and linked, and still nothing is served. So it
    is for the engines `unknown`, of which the running router was never told.
    `seconds` per stage name, `proof` what was shown free and what could not be observed. `resumed` requests
    outlasted the drain and went on afterwards, `cut` ones failed.
    """

    cell: str
    machine: Machine
    seconds: dict[str, float]
    out_of_service_s: float | None
    starts: tuple[Start, ...]
    proof: tuple[str, ...]
    canaries: tuple[Canary, ...]
    notes: tuple[str, ...]
    true_now: tuple[str, ...]
    next: str
    routed: bool = True
    unknown: tuple[str, ...] = ()
    resumed: int = 0
    cut: int = 0

    @property
    def done(self) -> bool:
        """The engines are new, linked and proved."""
        return self.machine.stage is Stage.DONE

    @property
    def ok(self) -> bool:
        """Done, and served."""
        return self.done and self.routed and not self.unknown


@dataclass(frozen=True)
class CoRestartReport:
    cells: tuple[CellReport, ...]

    @property
    def done(self) -> bool:
        return bool(self.cells) and all(cell.done for cell in self.cells)

    @property
    def ok(self) -> bool:
        return bool(self.cells) and all(cell.ok for cell in self.cells)

    @property
    def exit(self) -> Exit:
        """OK; INTERRUPTED; TIMEOUT for a deadline; PARTIAL when an earlier cell was done; else FINDINGS.

        FINDINGS too when all went well and no router sends requests there: an operator's script must not take
        it for served.
        """
        if self.done:
            return Exit.OK if self.ok else Exit.FINDINGS
        last = self.cells[-1].machine
        if last.event is Event.INTERRUPTED:
            return Exit.INTERRUPTED
        if len(self.cells) > 1:
            return Exit.PARTIAL
        return Exit.TIMEOUT if last.event is Event.EXPIRED else Exit.FINDINGS

    def document(self) -> dict[str, Any]:
        return {"schema": 1, "ok": self.ok, "exit": int(self.exit), "cells": [_cell(c) for c in self.cells]}


def _cell(c: CellReport) -> dict[str, Any]:
    return {
        "cell": c.cell,
        "ok": c.ok,
        "stage": c.machine.stage.name.lower(),
        "failed_at": c.machine.at.name.lower() if c.machine.at else None,
        "event": c.machine.event.value if c.machine.event else None,
        "reason": c.machine.reason,
        "seconds": {name: round(s, 2) for name, s in c.seconds.items()},
        "out_of_service_s": None if c.out_of_service_s is None else round(c.out_of_service_s, 2),
        "starts": [asdict(s) for s in c.starts],
        "proof": list(c.proof),
        "canaries": [asdict(x) for x in c.canaries],
        "notes": list(c.notes),
        "true_now": list(c.true_now),
        "next": c.next,
        "routed": c.routed,
        "unknown": list(c.unknown),
        "resumed": c.resumed,
        "cut": c.cut,
    }
