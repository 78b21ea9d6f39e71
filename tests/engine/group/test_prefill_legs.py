"""A prefill's legs: computed, given up for one that decode wants, computed again, handed over."""

from __future__ import annotations

from collections.abc import Sequence

from engine.cache.pages import PageAllocator
from engine.cache.prefix import Prefixes
from engine.core.types import FirstToken, Request, Sampled, Sampling
from engine.group import document
from engine.group.lifecycle import Lifecycle
from engine.group.messages import Out
from engine.schedule.scheduler import Limits, Scheduler


class Rooms:
    """Rooms whose Want has come are kept; what each was computed with."""

    def __init__(self) -> None:
        self.wanted: set[int] = set()
        self.first: dict[int, list[int]] = {}

    def open(self, room: int, rid: str) -> None: ...
    def chunk(self, room: int, pages: Sequence[int], complete: int) -> None: ...
    def abort(self, room: int, by: str) -> None: ...

    def computed(
        self, room: int, tokens: int, pages: Sequence[int], first: FirstToken, *rest: object
    ) -> None:
        self.first.setdefault(room, []).append(first.token)

    def give_up(self, room: int) -> bool:
        return room not in self.wanted


def test_a_leg_that_nobody_wants_makes_room_for_one_that_is_wanted() -> None:
    rooms, out, pages = Rooms(), list[Out](), PageAllocator(4)
    scheduler = Scheduler(Limits(64, 4, 4), pages, lambda seq: life.give_up(seq))
    life = Lifecycle(scheduler, rooms, (), 64, out.append, lambda: 0.0, lambda: 0.0)  # type: ignore[arg-type]
    for id, room in (("a", 1), ("b", 2)):
        request = Request(id=id, prompt=[1] * 14, sampling=Sampling(max_tokens=2), room=room)
        life.submit(request, prefill_leg=True)

    def step(token: int) -> list[str]:
        plan = scheduler.plan(0.0)
        if plan is None:
            return []
        life.commit(plan, [Sampled(token)] * len(plan.sequences))
        return [seq.id for seq in plan.sequences]

    def shown() -> dict[str, tuple[str, str | None, int]]:
        return {r["id"]: (r["stage"], r["waiting_on"], r["pages"]) for r in document.requests(life, {}, 0.0)}

    assert step(5) == ["a"] and step(5) == []
    assert shown() == {"a": ("inflight", None, 4), "b": ("waiting", "decode", 0)}

    rooms.wanted.add(2)
    life.room_wanted("b")
    assert step(6) == ["b"]
    assert shown() == {"a": ("waiting", "decode", 0), "b": ("inflight", None, 4)}
    life.room_ended("b", "done", "", 0.0)
    life.room_quiet("b")
    assert (pages.free, step(7)) == (4, [])

    rooms.wanted.add(1)
    life.room_wanted("a")
    assert step(8) == ["a"]
    assert rooms.first == {1: [5, 8], 2: [6]}, "the token of the second computation is the one handed over"
    assert life.sequences["a"].output == [8]
    life.room_ended("a", "done", "", 0.0)
    life.room_quiet("a")
    pages.check()
    assert pages.free == 4 and not life.sequences and not scheduler.inflight
    counters = life.counters.document()
    assert (counters["requests_done"], scheduler.preemptions) == (2, 1)
    assert [code for code in (o.code for o in out) if code] == []


def test_a_page_that_a_write_still_reads_is_shared_and_not_taken() -> None:
    """A leg ends while its writes are open; the next turn of the conversation comes meanwhile."""
    rooms, pages = Rooms(), PageAllocator(8)
    prefixes = Prefixes(pages, 4)
    scheduler = Scheduler(Limits(64, 4, 4), pages, lambda seq: life.give_up(seq), prefixes)
    life = Lifecycle(scheduler, rooms, (), 64, lambda _: None, lambda: 0.0, lambda: 0.0)  # type: ignore[arg-type]

    def leg(id: str, room: int, tokens: int) -> None:
        rooms.wanted.add(room)
        life.submit(
            Request(id=id, prompt=list(range(tokens)), sampling=Sampling(), room=room), prefill_leg=True
        )
        life.room_wanted(id)
        plan = scheduler.plan(0.0)
        if plan is not None:
            life.commit(plan, [Sampled(1)] * len(plan.sequences))
        pages.check()

    def counts() -> dict[str, int]:
        shown = document.pages(life)
        assert shown["free"] + shown["held"] + shown["quarantined"] == shown["total"]
        return {name: shown[name] for name in ("free", "cached", "held", "quarantined")}

    leg("a", 1, 18)
    assert life.abort("a", None, "client")
    assert counts() == {"free": 3, "cached": 0, "held": 0, "quarantined": 5}
    leg("b", 2, 22)  # shares four pages of the ended leg, and has two of its own
    assert life.sequences["b"].computed == 22 and prefixes.hit == 16
    assert counts() == {"free": 1, "cached": 0, "held": 6, "quarantined": 1}
    leg("c", 3, 30)
    assert life.sequences["c"].waiting_on == "pages", "not even what is quarantined and known is taken"
    life.room_ended("b", "done", "", 0.0)
    assert counts() == {"free": 1, "cached": 0, "held": 0, "quarantined": 7}
    life.room_quiet("b")
    assert counts() == {"free": 3, "cached": 1, "held": 0, "quarantined": 5}
    life.room_quiet("a")
    assert counts() == {"free": 8, "cached": 5, "held": 0, "quarantined": 0}
    plan = scheduler.plan(0.0)
    assert plan is not None and [len(piece.tokens) for piece in plan.batch.slices] == [10]
