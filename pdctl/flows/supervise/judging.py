"""The rules, beside the looks: a few cells at a time, on a thread of their own.

A diagnose asks hosts, which takes seconds, and longer the more there are. The loop looks on meanwhile, and
takes a verdict in once it is there, with when its facts were collected.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from concurrent.futures import Future
from dataclasses import dataclass, replace

from pdctl.bundle.documents import Documents
from pdctl.errors import DeadlineError
from pdctl.fleet.model import Fleet
from pdctl.flows.context import Context
from pdctl.flows.diagnose import diagnose_kept
from pdctl.remote.fanout import begin
from pdctl.supervisor.clock import Clock
from pdctl.supervisor.judge import FRONT, Seen, seen

# Cells of one diagnose: they share a bundle, and with them its hosts are asked and its size is bounded.
TOGETHER = 4
# Seconds. Every question of a diagnose has a deadline of its own and ends long before.
LIMIT = 900.0


@dataclass(frozen=True)
class Verdict:
    """What the rules say of `cells`, by facts collected from `at` (monotonic seconds) on."""

    cells: frozenset[str]
    at: float
    found: tuple[Seen, ...]
    documents: Documents

    def of(self, cell: str) -> list[Seen]:
        return [f for f in self.found if f.cell == cell]


class Judging:
    """`want` cells, `turn` now and then: whoever has waited longest is judged first."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self._fleet, self._clock = fleet, clock
        self._owners = {e.name: e.cell for e in fleet.engines()}
        self._waiting: dict[str, None] = {}
        self._under_way: Future[Verdict] | None = None
        self._began = 0.0

    @property
    def done(self) -> bool:
        """Whether `turn` has a verdict."""
        return self._under_way is not None and self._under_way.done()

    def want(self, cells: Iterable[str]) -> None:
        self._waiting |= dict.fromkeys(sorted(cells))

    def forget(self) -> None:
        """Nobody is to be judged now."""
        self._waiting.clear()

    def turn(self) -> Verdict | None:
        """A verdict that is there, and the next diagnose begun. Raises what a diagnose raised;
        DeadlineError for one that does not end, which is a fault of ours.
        """
        work = self._under_way
        if work is not None and not work.done():
            if time.monotonic() - self._began > LIMIT:
                raise DeadlineError("no_verdict", f"A diagnose did not end in {LIMIT:g} s.")
            return None
        self._under_way = None
        if self._waiting:
            cells, at = self._next(), self._clock.now()
            self._began = time.monotonic()
            self._under_way = begin(lambda: self._judge(cells, at))
        return work.result() if work is not None else None

    def _next(self) -> frozenset[str]:
        """The router is judged by the whole fleet, which judges every cell that waits."""
        first = next(iter(self._waiting))
        cells = list(self._waiting)
        if first != FRONT:
            cells = [cell for cell in cells if cell != FRONT][:TOGETHER]
        for cell in cells:
            del self._waiting[cell]
        return frozenset(cells)

    def _judge(self, cells: frozenset[str], at: float) -> Verdict:
        with Context(narrowed(self._fleet, cells)) as ctx:
            report, documents = diagnose_kept(ctx)
        return Verdict(cells, at, tuple(seen(report, self._owners)), documents)


def narrowed(fleet: Fleet, cells: Set[str]) -> Fleet:
    """The fleet with these cells alone, and the hosts that they and the router are on."""
    if FRONT in cells or set(fleet.cells) <= set(cells):
        return fleet
    kept = {name: cell for name, cell in fleet.cells.items() if name in cells}
    names = {e.host for cell in kept.values() for e in cell.engines} | {fleet.router.host, fleet.control}
    hosts = {name: host for name, host in fleet.hosts.items() if name in names}
    return replace(fleet, cells=kept, hosts=hosts)
