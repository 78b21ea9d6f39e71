"""Row 17: rows 1, 9 and 12 between sides of unequal tensor parallelism; answers equal the single engine's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.faults.bed import Beds
from tests.faults.cell import Cell, run
from tests.faults.kinds import Armed, Kill
from tests.faults.test_aborts import Stage, check_abort
from tests.faults.test_processes import at_work

P, D = "prefill-0", "decode-0"
SHAPES = [(1, 2), (2, 3), (3, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "abort", "error"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"p{s[0]}d{s[1]}")
def test_cell(beds: Beds, shape: tuple[int, int], fault: str, record: Path | None) -> None:
    prefill, decode = shape
    bed = beds.get(prefill, decode)
    bed.heal()
    if fault == "abort":
        check_abort(bed, Stage(D, "preallocated", (P, "stall-transfer", 0.0)), "client", record, row=17)
        return
    name = P if prefill > decode else D
    last = "rank 1" if max(shape) > 1 else "rank 0"
    make, moment = {
        "kill": (partial(Kill, name, last), partial(at_work, name)),
        "error": (partial(Armed, P, "fail-post"), None),
    }[fault]
    what = {"kill": f"SIGKILL {last}", "error": "a write ends in an error"}[fault]
    run(bed, Cell(17, f"tp {prefill} to {decode}: {what}", name, make, moment=moment), record)
