"""Row 18: the network between two hosts is cut, half cut, reset, or loses the control connection alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.bed import QUICK, ROUTER, Bed
from tests.faults.cell import Cell, params, run
from tests.faults.net import LINK, HostStack, Wire, heal, reset
from tests.hosts import hostpython
from tests.hosts.conftest import lab
from tests.hosts.lab.lab import Lab

__all__ = ["lab"]


@pytest.fixture(scope="module")
def wired(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, smollm: Path, right: list[str]
) -> Iterator[Bed]:
    if not hostpython.bind():
        pytest.skip(
            "the hosts have Python 3.11, these tests run on another: its libraries do not load there."
        )
    with lab.inside():
        made = HostStack(tmp_path_factory.mktemp("wired"), smollm, lab=lab)
        try:
            made.pair(QUICK, ROUTER)
            yield Bed(made, right)
        finally:
            heal(lab)
            made.close()


def cell(fault: str, where: str, what: Callable[[Lab], None]) -> Cell:
    return Cell(18, fault, where, partial(Wire, what), slow=True)


CELLS = [
    cell("partition", "h1 - h2", lambda lab: lab.net.cut("h1", "h2")),
    cell("one-way drop", "h2 to h1", lambda lab: lab.net.cut("h2", "h1", oneway=True)),
    cell("one-way drop", "h1 to h2", lambda lab: lab.net.cut("h1", "h2", oneway=True)),
    cell("TCP reset of the link", "h1", reset),
    cell("the link alone is dropped", "h1", lambda lab: lab.net.port("h1", LINK)),
]


@pytest.mark.parametrize("cell", params(CELLS))
def test_cell(wired: Bed, cell: Cell, record: Path | None) -> None:
    try:
        run(wired, cell, record)
    finally:
        heal(wired.stack.lab)  # type: ignore[attr-defined]
