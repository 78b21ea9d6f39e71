"""A prefill's legs: computed, given up for one that decode wants, computed again, handed over."""

from __future__ import annotations

from collections.abc import Sequence

from engine.cache.pages import PageAllocator
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
