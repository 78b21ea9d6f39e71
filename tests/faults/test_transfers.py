"""Rows 10 to 14: the transfer itself is refused, stuck, broken, lost or late."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.faults.bed import Bed
from tests.faults.cell import Cell, params, run
from tests.faults.kinds import Armed, Kill, Refused, Stop

P, D = "prefill-0", "decode-0"
SHORT = {f"{D}.prealloc": 1.5, f"{D}.transfer": 1.5, f"{P}.inflight": 2.0}
# Decode would wait longer than prefill: prefill's own watchdog is the one that has to fire.
WATCHDOG = {f"{P}.inflight": 2.0}


def slow(bed: Bed, seconds: float = 1.0) -> None:
    """Every write waits, so that there is a midst of a transfer to strike in."""
    bed.stack.admin(P, "faults", name="slow-transfer", armed=True, value=seconds)


def under_way(bed: Bed) -> bool:
    return bed.depth(D, "transferring") > 0


def at_full_speed(bed: Bed) -> None:
    bed.stack.admin(P, "faults", name="slow-transfer", armed=False)


@dataclass
class Died(Kill):
    def cure(self, bed: Bed) -> int:
        at_full_speed(bed)
        return super().cure(bed)


@dataclass
class Silent(Stop):
    """Alive, connected, and silent."""

    def cure(self, bed: Bed) -> int:
        at_full_speed(bed)
        return super().cure(bed)


def armed(point: str, at: str, **options: object) -> partial[Armed]:
    return partial(Armed, at, point, **options)  # type: ignore[arg-type]


CELLS = [
    Cell(
        10,
        "decode grants no pages",
        D,
        partial(Refused, D, "refuse-pages", 0, deadlines=SHORT, fires=f"{D}.prealloc"),
    ),
    Cell(
        10,
        "the watchdog of prefill alone",
        D,
        partial(Refused, D, "refuse-pages", 0, deadlines=WATCHDOG, fires=f"{P}.inflight"),
        slow=True,
    ),
    Cell(11, "writes held, never posted", P, armed("stall-transfer", P, deadlines=SHORT)),
    Cell(11, "writes held, prefill's watchdog", P, armed("stall-transfer", P, deadlines=WATCHDOG), slow=True),
    Cell(
        11,
        "SIGSTOP rank 0 mid-transfer",
        D,
        partial(Silent, D, "rank 0", 2.0),
        None,
        prepare=slow,
        moment=under_way,
        slow=True,
    ),
    Cell(12, "a write ends in an error", P, armed("fail-post", P)),
    Cell(
        12,
        "the peer's agent dies mid-transfer",
        D,
        partial(Died, D, "rank 0"),
        prepare=slow,
        moment=under_way,
        slow=True,
    ),
    Cell(13, "Want lost", P, armed("lose-want", P, deadlines=SHORT), slow=True),
    Cell(13, "Done lost", P, armed("lose-done", P, deadlines=SHORT)),
    Cell(
        14,
        "inflight deadline within a slow write",
        P,
        armed("slow-transfer", P, value=4.0, deadlines=WATCHDOG),
        slow=True,
    ),
    Cell(
        14,
        "transfer deadline within a slow write",
        D,
        armed("slow-transfer", P, value=4.0, deadlines=SHORT),
        slow=True,
    ),
]


@pytest.mark.parametrize("cell", params(CELLS))
def test_cell(bed: Bed, cell: Cell, record: Path | None) -> None:
    run(bed, cell, record)
