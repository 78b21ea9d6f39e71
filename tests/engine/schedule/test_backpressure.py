"""Prefill and decode over small pools: any two orders end, and prefill computes only a bounded way ahead."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.pages import PageAllocator
from engine.cache.prefix import Prefixes
from engine.core.types import Request, Sampling
from engine.schedule.legs import Prealloc
from engine.schedule.scheduler import AHEAD_SHARE, Limits, Scheduler
from engine.schedule.sequence import Sequence
from tests.examples import examples

PAGE = 4


def leg(name: str, tokens: int, arrived: float) -> Sequence:
    request = Request(id=name, prompt=[1] * tokens, sampling=Sampling())
    return Sequence(request, arrived, stop_after_prefill=True)


def scheduler(pages: int, running: int = 4, budget: int = 8, reuse: bool = False) -> Scheduler:
    pool = PageAllocator(pages)
    return Scheduler(Limits(budget, running, PAGE), pool, prefixes=Prefixes(pool, PAGE) if reuse else None)


def step(s: Scheduler) -> list[str]:
    """One step of a prefill; the legs in it. A leg with its first token goes to the inflight queue."""
    plan = s.plan(0.0)
    if plan is None:
        return []
    for seq in s.commit(plan):
        seq.output.append(7)
        s.to_inflight(seq, 0.0)
    s.pages.check()
    return [seq.id for seq in plan.sequences]


def hand_over(s: Scheduler, seq: Sequence) -> None:
    s.drop(seq)
    s.pages.give_back(seq.id)


@dataclass
class Pair:
    """A prefill and a decode that get the same requests in orders of their own; a Want takes `delay` turns.

    Decode keeps a request for `runs` turns after its KV came.
    """

    prefill: Scheduler
    decode: Scheduler
    delay: int
    runs: int
    done: list[str] = field(default_factory=list)
    wants: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.legs = Prealloc(self.decode)

    def turn(self) -> None:
        for seq, _ in self.legs.grant(0.0, refused=False):
            self.wants[seq.id] = self.delay
        self.wants = {name: left - 1 for name, left in self.wants.items()}
        everyone = [*self.prefill.waiting, *self.prefill.active, *self.prefill.inflight]
        for seq in everyone:
            seq.wanted = seq.wanted or self.wants.get(seq.id, 1) <= 0
        step(self.prefill)
        for seq in [s for s in self.prefill.inflight if s.wanted]:
            hand_over(self.prefill, seq)
            self.running[seq.id] = self.runs
        for name, left in list(self.running.items()):
            self.running[name] = left - 1
            if left == 0:
                del self.running[name]
                self.legs.arrived(name)
                self.decode.pages.give_back(name)
                self.done.append(name)
        for s in (self.prefill, self.decode):
            s.pages.check()


@given(
    prompts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
    spare=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    slots=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    delay=st.integers(0, 5),
    runs=st.integers(0, 5),
    reuse=st.booleans(),
)
@settings(max_examples=examples(300), deadline=None)
def test_any_two_orders_and_pools_that_hold_the_largest_prompt_end(
    prompts: list[int],
    order: object,
    spare: tuple[int, int],
    slots: tuple[int, int],
    delay: int,
    runs: int,
    reuse: bool,
) -> None:
    """With reuse too: all prompts begin alike, so each waits for pages that another computes."""
    largest = max(-(-(n + 1) // PAGE) for n in prompts)
    prefill = scheduler(largest + spare[0], slots[0], reuse=reuse)
    pair = Pair(prefill, scheduler(largest + spare[1], slots[1]), delay, runs)
    names = [f"r{i}" for i in range(len(prompts))]
    there = list(names)
    order.shuffle(there)  # type: ignore[attr-defined]
    for at, name in enumerate(names):
        pair.prefill.add(leg(name, prompts[at], float(at)))
    for at, name in enumerate(there):
        request = Request(id=name, prompt=[1] * prompts[names.index(name)], sampling=Sampling())
        pair.legs.add(Sequence(request, float(at)))
    # Every turn computes something, moves a Want, or counts a running request down.
    enough = len(prompts) * (max(prompts) + delay + runs + 4) * 2
    for _ in range(enough):
        pair.turn()
        ahead = [s for s in [*pair.prefill.active, *pair.prefill.inflight] if s.ahead]
        held = pair.prefill.pages.span(s.id for s in ahead)
        assert len(ahead) <= max(1, slots[0])
        assert len(ahead) <= 1 or held <= pair.prefill.pages.total * AHEAD_SHARE
    assert sorted(pair.done) == names, f"stuck: {pair.prefill.pages.held_by()} {pair.decode.pages.held_by()}"
    assert pair.prefill.preemptions <= len(prompts), "a leg is given up once at most"


def test_pools_of_one_prompt_and_two_orders_end() -> None:
    """A, B at prefill and B, A at decode, each side with pages for one: the pair that waited for ever."""
    s = scheduler(pages=4)
    a, b = leg("a", 16, 0.0), leg("b", 16, 1.0)
    s.add(a)
    s.add(b)
    while step(s):
        pass
    assert (a.stage, b.stage, b.waiting_on) == ("inflight", "waiting", "decode")
    b.wanted = True
    while step(s):
        pass
    assert (b.stage, a.stage, a.waiting_on, a.computed, a.output) == ("inflight", "waiting", "decode", 0, [])
    hand_over(s, b)
    assert step(s) == [], "what was given up once waits until decode asks for it"
    a.wanted = True
    while step(s):
        pass
    assert (a.stage, a.output) == ("inflight", [7])


def test_a_leg_that_decode_has_asked_for_meanwhile_is_not_given_up() -> None:
    s = Scheduler(Limits(8, 4, PAGE), PageAllocator(4), give_up=lambda seq: False)
    a, b = leg("a", 16, 0.0), leg("b", 16, 1.0)
    s.add(a)
    s.add(b)
    while step(s):
        pass
    b.wanted = True
    assert step(s) == []
    assert (a.stage, b.waiting_on, s.preemptions) == ("inflight", "pages", 0)
    assert a.wanted, "the refusal is the news that its Want has come"


def test_wanted_legs_are_computed_first() -> None:
    s = scheduler(pages=64, budget=4)
    for at, name in enumerate("abc"):
        s.add(leg(name, 8, float(at)))
    step(s)
    next(q for q in [*s.active, *s.waiting] if q.id == "c").wanted = True
    assert step(s) == ["c"] and step(s) == ["c"]
    assert step(s) == ["a"]


def test_nobody_is_given_up_in_vain() -> None:
    """What could be freed is too little: the wanted leg waits for those that will leave by themselves."""
    s = scheduler(pages=8, budget=64)
    wanted, idle = leg("wanted", 16, 0.0), leg("idle", 8, 1.0)
    wanted.wanted = True
    s.add(wanted)
    s.add(idle)
    step(s)
    assert (wanted.stage, idle.stage) == ("inflight", "inflight")
    large = leg("large", 28, 2.0)
    large.wanted = True
    s.add(large)
    assert step(s) == [] and (large.waiting_on, idle.stage) == ("pages", "inflight")
    hand_over(s, wanted)
    assert step(s) == ["large"] and idle.stage == "waiting"


@pytest.mark.parametrize(
    ("pages", "prompt", "ahead"), [(64, 8, 4), (16, 8, 4), (8, 8, 2), (4, 16, 1), (16, 24, 1)]
)
def test_how_far_prefill_computes_ahead_of_decode(pages: int, prompt: int, ahead: int) -> None:
    """At most `max_running` legs and half of the pool, one leg always; the others say what they wait for."""
    s = scheduler(pages=pages, running=4, budget=64)
    legs = [leg(f"l{i}", prompt, float(i)) for i in range(9)]
    for seq in legs:
        s.add(seq)
    while step(s):
        pass
    assert [q.stage for q in legs] == ["inflight"] * ahead + ["waiting"] * (9 - ahead)
    assert {q.waiting_on for q in legs[ahead:]} == {"decode"}


def test_a_wanted_leg_takes_the_slot_of_one_that_nobody_wants() -> None:
    s = scheduler(pages=64, running=1, budget=4)
    idle, late = leg("idle", 16, 0.0), leg("late", 8, 1.0)
    s.add(idle)
    assert step(s) == ["idle"]
    late.wanted = True
    s.add(late)
    assert step(s) == ["late"] and (idle.stage, idle.waiting_on) == ("waiting", "decode")
