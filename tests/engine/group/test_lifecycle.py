"""Ids and rooms that come back while an earlier use of them is not over."""

from __future__ import annotations

from collections.abc import Sequence

from engine.cache.pages import PageAllocator
from engine.core.types import FirstToken, Request, Sampling
from engine.group import document
from engine.group.lifecycle import Lifecycle
from engine.group.messages import Out
from engine.schedule.scheduler import Limits, Scheduler


class Transfer:
    """Remembers the rid that each room was opened with, and how it was ended."""

    def __init__(self) -> None:
        self.rids: dict[int, str] = {}
        self.ends: list[tuple[int, str]] = []

    def open(self, room: int, rid: str) -> None:
        self.rids[room] = rid

    def request(self, room: int, rid: str, address: str) -> None:
        self.rids[room] = rid

    def chunk(self, room: int, pages: Sequence[int], complete: int) -> None: ...
    def computed(self, room: int, tokens: int, pages: Sequence[int], first: FirstToken) -> None: ...
    def grant(self, room: int, pages: Sequence[int], tokens: int) -> None: ...

    def abort(self, room: int, by: str) -> None:
        self.ends.append((room, by))

    def fail(self, room: int, code: str, message: str) -> None:
        self.ends.append((room, code))


class Leg:
    """A decode's lifecycle of 8 pages."""

    def __init__(self) -> None:
        self.rooms, self.out = Transfer(), list[Out]()
        self.pages = PageAllocator(8)
        scheduler = Scheduler(Limits(token_budget=64, max_running=4, page_size=4), self.pages)
        self.life = Lifecycle(scheduler, self.rooms, (), 64, self.out.append, lambda: 0.0, lambda: 0.0)

    def begin(self, id: str, room: int) -> None:
        request = Request(id=id, prompt=[1] * 5, sampling=Sampling(max_tokens=2), room=room, peer="h:1")
        self.life.submit(request, prefill_leg=False)
        self.life.grant_legs(refused=False)

    def counts(self) -> tuple[int, int, int]:
        self.pages.check()
        return self.pages.free, self.pages.held, self.pages.quarantined


def test_an_id_that_comes_back_during_its_quarantine_is_served_beside_it() -> None:
    leg = Leg()
    leg.begin("again", 1)
    assert leg.life.abort("again", None, "client") and leg.counts() == (6, 0, 2)
    leg.begin("again", 2)
    assert leg.counts() == (4, 2, 2) and leg.rooms.rids[2] != leg.rooms.rids[1] == "again"
    leg.life.room_quiet(leg.rooms.rids[1])  # the first life's pages become free, no others
    assert leg.counts() == (6, 2, 0)
    (entry,) = document.requests(leg.life, {}, 0.0)
    assert (entry["id"], entry["pages"]) == ("again", 2)
    leg.life.room_ready(leg.rooms.rids[2], FirstToken(7))
    assert (leg.out[-1].id, leg.out[-1].tokens) == ("again", [7])
    assert leg.life.abort("again", None, "client") and leg.counts() == (6, 0, 2)
    leg.life.room_quiet(leg.rooms.rids[2])
    assert leg.counts() == (8, 0, 0)


def test_a_live_id_is_refused_under_whichever_name_it_lives() -> None:
    leg = Leg()
    leg.begin("again", 1)
    leg.life.abort("again", None, "client")
    leg.begin("again", 2)
    leg.begin("again", 3)
    assert (leg.out[-1].code, 3 in leg.rooms.rids) == ("invalid_request", False)
    assert leg.life.abort("", 2, "admin") and leg.rooms.ends == [(1, "client"), (2, "admin")]
    assert leg.out[-1].message == "The request was aborted by admin."
    assert leg.life.counters.document()["requests_aborted"] == 2


def test_room_zero_is_a_room() -> None:
    leg = Leg()
    leg.begin("a", 0)
    (entry,) = document.requests(leg.life, {0: {"peer": "prefill-0", "bytes": 5}}, 0.0)
    assert (entry["peer"], entry["bytes"]) == ("prefill-0", 5)
