"""Rows 1 to 3: ranks and engines killed and stopped at work, on either side."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.faults.bed import Bed
from tests.faults.cell import Cell, params, run
from tests.faults.kinds import Kill, NoSteps, Stop, Whom

P, D = "prefill-0", "decode-0"
WORK = {P: ("prefilling", "inflight"), D: ("running",)}


def at_work(name: str, bed: Bed) -> bool:
    return bed.depth(name, *WORK[name]) > 0


def kill(row: int, name: str, whom: Whom, slow: bool) -> Cell:
    return Cell(
        row, f"SIGKILL {whom}", name, partial(Kill, name, whom), moment=partial(at_work, name), slow=slow
    )


def stop(name: str, whom: Whom, seconds: float, ends: bool, slow: bool) -> Cell:
    what = f"SIGSTOP {whom}" + (", for good" if ends else f" {seconds:g} s")
    make = partial(Stop, name, whom, seconds, ends)
    return Cell(
        3,
        what,
        name,
        make,
        moment=partial(at_work, name),
        slow=slow,
        detect=None if seconds < 3 and not ends else 15.0,
    )


CELLS = [
    kill(1, P, "rank 1", slow=False),
    kill(1, P, "rank 0", slow=True),
    kill(1, D, "rank 0", slow=True),
    kill(2, P, "parent", slow=True),
    kill(2, D, "parent", slow=False),
    stop(P, "rank 1", 2.0, ends=False, slow=False),
    stop(D, "rank 0", 2.0, ends=False, slow=True),
    stop(D, "group", 5.0, ends=False, slow=True),
    stop(P, "group", 5.0, ends=False, slow=True),
    stop(P, "rank 1", 0.0, ends=True, slow=True),
    stop(P, "rank 0", 0.0, ends=True, slow=True),
    stop(D, "rank 0", 0.0, ends=True, slow=True),
    stop(D, "parent", 0.0, ends=True, slow=True),
    stop(P, "parent", 0.0, ends=True, slow=True),
    Cell(3, "alive without a step", P, partial(NoSteps, P, "stop-steps", 0), 30.0, slow=True),
    Cell(3, "alive without a step", D, partial(NoSteps, D, "stop-steps", 0), 30.0, slow=True),
    stop(P, "group", 30.0, ends=False, slow=True),
    stop(D, "group", 30.0, ends=False, slow=True),
]


@pytest.mark.parametrize("cell", params(CELLS))
def test_cell(bed: Bed, cell: Cell, record: Path | None) -> None:
    run(bed, cell, record)
