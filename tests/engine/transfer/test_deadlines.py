"""One heap of deadlines: fired once, moved, cancelled, counted by name only when they took effect."""

from __future__ import annotations

import threading

from engine.transfer.deadlines import Deadlines
from tests.engine.transfer.harness import until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_deadlines_fire_in_order_once() -> None:
    clock, fired = Clock(), list[str]()
    deadlines = Deadlines(clock)
    for name, at in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        deadlines.arm(name, name, at, lambda n=name: not fired.append(n))  # type: ignore[misc, func-returns-value]
    clock.now = 2.5
    assert deadlines.run_due() == 2 and fired == ["a", "b"]
    assert deadlines.run_due() == 0 and deadlines.next_at() == 3.0
    assert deadlines.fired() == {"a": 1, "b": 1} and deadlines.latest() == {"a": 1.5, "b": 0.5}


def test_cancel_rearm_and_replace() -> None:
    clock, fired = Clock(), list[int]()
    deadlines = Deadlines(clock)
    deadlines.arm("x", "n", 1.0, lambda: bool(fired.append(1)) or True)
    deadlines.cancel("x")
    assert not deadlines.rearm("x", 2.0)
    deadlines.arm("y", "n", 1.0, lambda: bool(fired.append(2)) or True)
    assert deadlines.rearm("y", 5.0)
    deadlines.arm("z", "n", 1.0, lambda: bool(fired.append(3)) or True)
    deadlines.arm("z", "n", 2.0, lambda: bool(fired.append(4)) or True)
    clock.now = 4.0
    deadlines.run_due()
    assert fired == [4]
    clock.now = 5.0
    deadlines.run_due()
    assert fired == [4, 2]


def test_a_deadline_without_effect_is_not_counted() -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    deadlines.arm("x", "inflight", 1.0, lambda: False)
    clock.now = 2.0
    assert deadlines.run_due() == 0 and deadlines.fired() == {}


def test_a_cancelled_crowd_leaves_no_memory_behind() -> None:
    deadlines = Deadlines(Clock())
    for n in range(10_000):
        deadlines.arm(n, "n", float(n), lambda: True)
        deadlines.cancel(n)
    assert len(deadlines._heap) < 100


def test_the_thread_serves_a_deadline_that_becomes_the_nearest() -> None:
    deadlines, order, done = Deadlines(), list[str](), threading.Event()
    deadlines.start()
    base = deadlines._clock()
    deadlines.arm("late", "n", base + 600.0, lambda: bool(order.append("late")) or True)
    deadlines.arm("soon", "n", base + 0.05, lambda: bool(order.append("soon")) or True)
    deadlines.arm("last", "n", base + 0.1, lambda: bool(done.set()) or True)
    until(done.is_set, "the deadlines were served")
    assert order == ["soon"]
    deadlines.stop()
