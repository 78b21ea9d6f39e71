"""One side of an abort storm over real agents: every page that becomes free is filled with poison, and
looked at when it is taken again and at the end. As a process (`main`), the decode side of the storm.

A write that lands after a room went quiet overwrites the poison of a free page, or the KV of another
room; either is a violation.
"""

from __future__ import annotations

import heapq
import json
import queue
import sys
import threading
import time
from collections.abc import Callable

from engine.core.errors import RequestError
from engine.core.types import FirstToken
from engine.transfer.ports import Outcome
from tests.engine.transfer.harness import SHAPE, Engine, RealAgents

# Not the same on both sides: a late write of a page that prefill gave up too must be seen on decode.
POISON = {"prefill": -12345.0, "decode": -54321.0}
# Rooms that stall end soon; a machine that is busy with other things does not lose the link.
ENV = {
    "PD_DECODE_PREALLOC_TIMEOUT": "30",
    "PD_DECODE_TRANSFER_TIMEOUT": "10",
    "PD_HEARTBEAT_TIMEOUT": "60",
    "PD_HANDSHAKE_TIMEOUT": "100",
}
PAGES = 48  # few, so that what was freed is reused at once


def mark(room: int, page: int) -> float:
    """What every number of a room's logical page is."""
    return float(room * 16 + page)


class Side:
    """An engine's page table over the pools of its ranks."""

    def __init__(self, engine: Engine) -> None:
        assert isinstance(engine.ranks, RealAgents)
        self.engine, self.pools = engine, engine.ranks.pools
        self.poison = POISON["prefill" if engine.transfer.sender is not None else "decode"]
        self.lock = threading.Lock()
        self.free = list(range(PAGES))  # the scratch page follows them
        self.held: dict[int, list[int]] = {}
        self.ends: dict[int, str] = {}
        self.quiets: set[int] = set()
        self.violations: list[str] = []
        self.reused: set[int] = set()
        self.used: set[int] = set()
        self.ready: list[int] = []
        for page in self.free:
            self._fill(page, self.poison)
        engine.sink.ended, engine.sink.quiet = self.on_ended, self.on_quiet  # type: ignore[method-assign]
        engine.sink.ready = self.on_ready  # type: ignore[method-assign]

    def _fill(self, page: int, value: float) -> None:
        for pool in self.pools:
            pool[page].fill_(value)

    def _holds(self, page: int, value: float) -> bool:
        return all(bool((pool[page] == value).all()) for pool in self.pools)

    def take(self, room: int, count: int) -> list[int] | None:
        """Pages that were freed longest ago, with their poison looked at; None when too few are free."""
        with self.lock:
            if count > len(self.free):
                return None
            pages, self.free = self.free[:count], self.free[count:]
            for page in pages:
                if not self._holds(page, self.poison):
                    self.violations.append(f"page {page} was written while it was free, seen by room {room}")
            self.reused |= self.used & set(pages)
            self.used |= set(pages)
            self.held[room] = pages
            return pages

    def give_back(self, room: int) -> None:
        with self.lock:
            pages = self.held.pop(room, [])
            for page in pages:
                self._fill(page, self.poison)
            self.free = [*pages, *self.free]  # taken again first: the shortest way to a reused page

    def on_ended(self, room: int, rid: str, outcome: Outcome) -> None:
        if room in self.ends:
            self.violations.append(f"room {room} ended twice: {self.ends[room]} and {outcome.kind}")
        self.ends[room] = outcome.kind

    def on_quiet(self, room: int, rid: str) -> None:
        self.quiets.add(room)
        if self.ends[room] != "done" or self.engine.transfer.sender is not None:
            self.give_back(room)

    def on_ready(self, room: int, rid: str, first: FirstToken) -> None:
        """Decode has the room's KV: every page must carry the room's own marks."""
        for at, page in enumerate(self.held[room]):
            if not self._holds(page, mark(room, at)):
                self.violations.append(f"page {at} of room {room} was handed over with other content")
        self.ready.append(room)
        self.give_back(room)

    def report(self) -> dict[str, object]:
        """Ends and violations, with the poison of every free page looked at."""
        with self.lock:
            bad = [page for page in self.free if not self._holds(page, self.poison)]
            return {
                "violations": [*self.violations, *(f"page {p} was written while it was free" for p in bad)],
                "ends": self.ends,
                "quiet": len(self.quiets),
                "ready": len(self.ready),
                "reused": len(self.reused),
                "free": len(self.free),
            }


class Timeline:
    """Calls that are made when their time comes, by the thread that turns it."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._calls, (time.monotonic() + seconds, self._count, call))

    def turn(self) -> bool:
        """Make the calls that are due; whether any are left."""
        while self._calls and self._calls[0][0] <= time.monotonic():
            heapq.heappop(self._calls)[2]()
        return bool(self._calls)


def begin(side: Side, plan: dict[str, float], address: str, timeline: Timeline) -> None:
    """Decode's part of a room: request, pages as soon as there are some, an abort when the plan has one."""
    room, pages = int(plan["room"]), int(plan["pages"])
    transfer = side.engine.transfer
    try:
        transfer.request(room, f"d{room}", address)
    except RequestError as error:
        side.violations.append(str(error))

    def grant() -> None:
        if room in side.ends:
            return
        got = side.take(room, pages)
        if got is None:
            timeline.after(0.002, grant)
        elif not transfer.grant(room, got, pages * SHAPE.page_size):
            side.give_back(room)  # it ended in this instant; nobody was told these pages

    grant()
    if "abort" in plan:
        timeline.after(plan["abort"], lambda: transfer.abort(room, "client") and None)


def main() -> None:
    """argv: the prefill's address. stdin: one plan a line, then an empty line; stdout: `report` as JSON."""
    address = sys.argv[1]
    side = Side(Engine("decode", "decode-0", real=True, pages=PAGES + 1, env=ENV, peers=[address]))
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: [lines.put(x) for x in iter(sys.stdin.readline, "")], daemon=True).start()
    timeline, plans, closed, until = Timeline(), 0, False, time.monotonic() + 280.0
    while not closed or timeline.turn() or len(side.quiets) < plans:
        if time.monotonic() > until:
            side.violations.append(f"{plans - len(side.quiets)} rooms never became quiet")
            break
        timeline.turn()
        try:
            line = lines.get(timeout=0.001).strip()
        except queue.Empty:
            continue
        closed = closed or not line
        if line:
            plans += 1
            begin(side, json.loads(line), address, timeline)
    print(json.dumps(side.report()), flush=True)
    side.engine.stop()


if __name__ == "__main__":
    main()
