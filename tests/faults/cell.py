"""The frame: a cell of the matrix is injected under load, proven to have taken effect, and measured.

A cell without evidence fails, whatever else went well: a fault that did not happen proves nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.faults.bed import Bed
from tests.faults.load import Load, wait
from tests.faults.matrix import ROWS
from tests.faults.watch import Watch

EVIDENCE_WITHIN = 15.0
# What a library or an interpreter says, not we.
FOREIGN = re.compile(r"gloo|nixl_|Traceback|\w+Error\b|\.cc:|GLHF", re.IGNORECASE)


class NoEffectError(AssertionError):
    """The fault did not take effect: whatever the cell measured, it measured something else."""


class Fault(Protocol):
    """What is done to a bed, how that is seen, and what an operator or a supervisor then does."""

    def inject(self, bed: Bed) -> None: ...

    def evidence(self, bed: Bed) -> str:
        """What shows that it happened; empty as long as nothing does."""

    def cure(self, bed: Bed) -> int:
        """Until the fault is over; starts of processes that this took."""


@dataclass(frozen=True)
class Cell:
    """One cell: its row, its bounds in seconds, and the moment of the load at which it strikes.

    `detect` None: nothing is wrong by anyone's account, so nothing has to notice.
    """

    row: int
    fault: str
    where: str
    make: Callable[[], Fault]
    detect: float | None = 15.0
    recover: float = 120.0
    prepare: Callable[[Bed], object] | None = None
    moment: Callable[[Bed], object] | None = None
    broken_ok: bool = False  # clients lose their own connection when the router itself dies
    slow: bool = False

    @property
    def id(self) -> str:
        return f"{self.row:02d} {self.fault} {self.where}".replace(" ", "-")


@dataclass
class Result:
    """What one cell measured; a line of the results file."""

    row: int
    fault: str
    where: str
    evidence: str = ""
    detect_s: float | None = None
    detect_by: str = ""
    recover_s: float | None = None
    requests: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    hung: int = 0
    wrong: int = 0
    broken: int = 0
    held: dict[str, int] = field(default_factory=dict)
    restarts: int = 0
    problems: list[str] = field(default_factory=list)
    at: float = field(default_factory=time.time)


def params(cells: list[Cell]) -> list[Any]:
    """Cells as parameters of a test; slow ones run in `make faults` only."""
    marks = {False: (), True: (pytest.mark.slow,)}
    return [pytest.param(c, id=c.id, marks=marks[c.slow]) for c in cells]


@contextmanager
def measured(row: int, fault: str, where: str, record: Path | None) -> Iterator[Result]:
    """A result that is recorded however the block ends, and that fails without evidence."""
    assert row in ROWS, f"row {row} is not in the matrix"
    result = Result(row, fault, where)
    try:
        yield result
        if not result.evidence:
            raise NoEffectError(f"The fault did not take effect: {fault} at {where} left no evidence.")
    except KeyboardInterrupt:
        record = None  # says nothing about the cell
        raise
    except BaseException as error:
        result.problems.append(str(error).splitlines()[0][:300] if str(error) else type(error).__name__)
        raise
    finally:
        if record is not None:
            with record.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
    assert not result.problems, f"{fault} at {where}: {'; '.join(result.problems)}"


def run(bed: Bed, cell: Cell, record: Path | None, *, evidence_within: float = EVIDENCE_WITHIN) -> Result:
    """Inject one fault into a bed under load; the result once the bed serves again and holds nothing."""
    bed.heal()
    fault = cell.make()
    with measured(cell.row, cell.fault, cell.where, record) as result:
        with Load(bed.url, bed.right) as load, Watch(bed.stack.processes) as watch:
            load.wait_rights(1, 0.0, 120.0, "a right answer before the fault")
            if cell.prepare is not None:
                cell.prepare(bed)
            if cell.moment is not None:
                wait(lambda: cell.moment and cell.moment(bed), 30.0, f"the moment of {cell.id}", every=0.01)
            struck = time.monotonic()
            fault.inject(bed)
            result.evidence = _evidence(fault, bed, evidence_within)
            seen = time.monotonic()
            result.restarts = fault.cure(bed)
            load.wait_rights(3, seen, cell.recover, "right answers after the fault")
            load.end()
            errors = [(s.ended, f"client: {s.said}") for s in load.shots if s.fate == "failed"]
            first = watch.first(struck, errors)
        _tally(result, load)
        if first is not None:
            result.detect_s, result.detect_by = first[0] - struck, first[1]
        result.recover_s = _whole_again(load, seen) - struck
        _judge(result, cell)
        _leftovers(result, bed)
    return result


def _evidence(fault: Fault, bed: Bed, within: float) -> str:
    try:
        return str(wait(lambda: fault.evidence(bed), within, "evidence"))
    except AssertionError:
        raise NoEffectError(f"The fault did not take effect within {within:g} s.") from None


def _whole_again(load: Load, seen: float) -> float:
    """When answers are right and none fails any more."""
    right = min(s.ended for s in load.shots if s.fate == "right" and s.began >= seen)
    return max([right, *(s.ended for s in load.shots if s.fate != "right")])


def _tally(result: Result, load: Load) -> None:
    fates = load.fates()
    result.requests = len(load.shots)
    result.hung, result.wrong, result.broken = fates["hung"], fates["wrong"], fates["broken"]
    result.failed = dict(Counter(s.said for s in load.shots if s.fate == "failed"))
    for shot in load.shots:
        if shot.fate in ("hung", "wrong", "broken"):
            result.detect_by = result.detect_by or shot.said
        if FOREIGN.search(shot.words):
            result.problems.append(f"a client reads {shot.words[:120]!r}, which is not a sentence of ours")


def _judge(result: Result, cell: Cell) -> None:
    say = result.problems.append
    if result.hung:
        say(f"{result.hung} requests hung")
    if result.wrong:
        say(f"{result.wrong} answers were wrong: {result.detect_by}")
    if result.broken and not cell.broken_ok:
        say(f"{result.broken} requests ended without a typed error: {result.detect_by}")
    if cell.detect is not None:
        if result.detect_s is None:
            say("nobody noticed")
        elif result.detect_s > cell.detect:
            say(f"noticed after {result.detect_s:.1f} s, bound {cell.detect:g} s")
    if result.recover_s is not None and result.recover_s > cell.recover:
        say(f"whole again after {result.recover_s:.1f} s, bound {cell.recover:g} s")


def _leftovers(result: Result, bed: Bed) -> None:
    """Pages back to baseline on every engine, and each side linked to the other's present life alone."""
    try:
        wait(bed.clean, 30.0, "no engine holds a page or a request", every=0.2)
    except AssertionError as error:
        result.problems.append(str(error))
    result.held = bed.held()
    try:
        wait(bed.one_life_each, 15.0, "each side is linked to the present lives of the other", every=0.2)
    except AssertionError as error:
        result.problems.append(str(error))
