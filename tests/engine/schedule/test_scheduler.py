"""The scheduler against a fake model that needs every token's KV exactly once and in order."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.cache.pages import PageAllocator
from engine.cache.prefix import Prefixes
from engine.core.types import Request, Sampling
from engine.schedule.legs import Prealloc
from engine.schedule.scheduler import Limits, Scheduler
from engine.schedule.sequence import Sequence


def make(
    pages: int = 64, budget: int = 16, running: int = 4, page: int = 4, reuse: bool = False
) -> Scheduler:
    pool = PageAllocator(pages)
    prefixes = Prefixes(pool, page) if reuse else None
    return Scheduler(Limits(budget, running, page), pool, prefixes=prefixes)


def sequence(name: str, prompt: int, arrived: float = 0.0, **flags: bool) -> Sequence:
    request = Request(id=name, prompt=list(range(prompt)), sampling=Sampling())
    return Sequence(request, arrived, **flags)


def run(scheduler: Scheduler, outputs: dict[str, int], limit: int = 2000) -> dict[str, list[int]]:
    """Step until every sequence has `outputs[id]` tokens; returns positions computed per sequence."""
    computed: dict[str, list[int]] = {}
    begun: dict[str, int] = {}
    for _ in range(limit):
        plan = scheduler.plan(0.0)
        if plan is None:
            return computed
        total = 0
        for seq, piece in zip(plan.sequences, plan.batch.slices, strict=True):
            total += len(piece.tokens)
            assert len(piece.pages) * scheduler.limits.page_size >= piece.start + len(piece.tokens)
            if begun.get(seq.id) != seq.preempted:  # from its beginning, or after a preemption anew
                begun[seq.id] = seq.preempted
                computed[seq.id] = list(range(piece.start))  # what it shares, which may be more than before
            computed[seq.id].extend(range(piece.start, piece.start + len(piece.tokens)))
        assert total <= scheduler.limits.token_budget
        assert len(plan.sequences) <= scheduler.limits.max_running
        for seq in scheduler.commit(plan):
            seq.output.append(7)
            if len(seq.output) >= outputs[seq.id]:
                scheduler.drop(seq)
                scheduler.pages.give_back(seq.id)
        scheduler.pages.check()
    raise AssertionError("the scheduler makes no progress")


@given(
    prompts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    outputs=st.integers(1, 12),
    pages=st.integers(18, 40),
    budget=st.integers(4, 32),
    reuse=st.booleans(),
)
@example(prompts=[1, 53, 5, 54], outputs=11, pages=18, budget=4, reuse=True)
@settings(max_examples=80, deadline=None)
def test_every_sequence_ends_whatever_the_pressure(
    prompts: list[int], outputs: int, pages: int, budget: int, reuse: bool
) -> None:
    scheduler = make(pages=pages, budget=budget, reuse=reuse)
    wanted = {}
    for index, prompt in enumerate(prompts):
        name = f"s{index}"
        wanted[name] = outputs
        scheduler.add(sequence(name, prompt, arrived=float(index)))
    computed = run(scheduler, wanted)
    for index, prompt in enumerate(prompts):
        assert computed[f"s{index}"] == list(range(prompt + outputs - 1)), (
            "a position missed or computed twice"
        )
    assert scheduler.pages.free == pages and not scheduler.active and not scheduler.waiting


def test_a_running_sequence_is_served_before_a_new_prompt() -> None:
    scheduler = make(budget=4)
    old = sequence("old", 3)
    scheduler.add(old)
    plan = scheduler.plan(0.0)
    assert plan is not None
    scheduler.commit(plan)
    old.output.append(1)
    scheduler.add(sequence("new", 40, arrived=1.0))
    plan = scheduler.plan(0.0)
    assert plan is not None
    assert [len(s.tokens) for s in plan.batch.slices] == [1, 3]
    assert plan.sequences[0] is old


def test_the_youngest_is_preempted_and_recomputed_with_its_output() -> None:
    scheduler = make(pages=6, budget=16, page=4)
    a, b = sequence("a", 8), sequence("b", 8, arrived=1.0)
    for seq in (a, b):
        scheduler.add(seq)
    outputs = {"a": 12, "b": 8}
    run(scheduler, outputs)
    assert scheduler.preemptions > 0
    assert a.preempted == 0 and b.preempted > 0
    assert (len(a.output), len(b.output)) == (12, 8)


def test_prefill_legs_take_all_their_pages_at_once() -> None:
    scheduler = make(pages=10, budget=8, page=4)
    for index in range(2):
        leg = sequence(f"leg{index}", 32, arrived=float(index), stop_after_prefill=True, wanted=True)
        scheduler.add(leg)
    scheduler.plan(0.0)
    assert scheduler.pages.held_by() == {"leg0": 8}
    assert [s.waiting_on for s in scheduler.waiting] == ["pages"]


class TestPrealloc:
    def test_grants_in_order_and_says_what_a_leg_waits_for(self) -> None:
        scheduler = make(pages=8, running=2, page=4)
        legs = Prealloc(scheduler)
        queue = [sequence(f"d{i}", n, arrived=float(i)) for i, n in enumerate((12, 20, 3))]
        for seq in queue:
            legs.add(seq)
        granted = legs.grant(0.0, refused=False)
        assert [(s.id, len(p)) for s, p in granted] == [("d0", 4)]
        assert queue[1].waiting_on == "pages", "first come first served: d2 would fit but waits its turn"
        scheduler.pages.give_back("d0")
        legs.drop(queue[0])
        assert [s.id for s, _ in legs.grant(0.0, refused=False)] == ["d1", "d2"]

    def test_a_full_batch_is_a_slot_wait(self) -> None:
        scheduler = make(running=1)
        legs = Prealloc(scheduler)
        first, second = sequence("a", 4), sequence("b", 4)
        legs.add(first)
        legs.add(second)
        assert len(legs.grant(0.0, refused=False)) == 1
        assert second.waiting_on == "slot"
        legs.arrived("a")
        scheduler.resume(first, 0.0)
        assert legs.grant(0.0, refused=False) == []
        scheduler.drop(first)
        assert len(legs.grant(0.0, refused=False)) == 1

    @pytest.mark.parametrize("refused", [True, False])
    def test_the_refuse_pages_drill_holds_legs_back(self, refused: bool) -> None:
        legs = Prealloc(make())
        legs.add(sequence("a", 4))
        assert bool(legs.grant(0.0, refused)) is not refused


def test_pages_of_state_are_the_first_of_a_list_and_the_last_to_be_handed_over() -> None:
    scheduler = Scheduler(Limits(16, 4, 4, state_pages=3), PageAllocator(9))
    assert [scheduler.pages_for(n) for n in (1, 4, 5)] == [4, 4, 5]
    scheduler.add(sequence("a", 9))
    plan = scheduler.plan(0.0)
    assert plan is not None
    pages = plan.batch.slices[0].pages
    assert len(pages) == 6 and scheduler.in_order_of_transfer(pages) == [*pages[3:], *pages[:3]]
    scheduler.add(sequence("b", 1))
    assert scheduler.plan(0.0) is not None and not scheduler.pages.pages("b"), "3 pages are no room for it"
