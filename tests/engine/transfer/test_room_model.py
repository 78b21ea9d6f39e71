"""Every interleaving of the room protocol's small model keeps its promises, and none of them is idle:
each breaks when one guard of the protocol is left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from tests.engine.transfer.room_model import Model, State

LIVENESS = "every room ends"


def explore(model: Model) -> tuple[dict[State, list[State]], str, list[str]]:
    """Breadth first over all states: each with what it leads to by itself; or the broken invariant with
    the shortest way to it."""
    start = State()
    after: dict[State, list[State]] = {}
    came: dict[State, tuple[State, str] | None] = {start: None}
    todo = deque([start])

    def way(state: State) -> list[str]:
        steps: list[str] = []
        at = came[state]
        while at is not None:
            steps.append(at[1])
            at = came[at[0]]
        return steps[::-1]

    while todo:
        state = todo.popleft()
        broken = model.broken(state)
        if broken:
            return after, broken, way(state)
        after[state] = []
        steps = [(True, step) for step in model.progress(state)]
        steps += [(False, step) for step in model.choices(state)]
        for by_itself, (label, following) in steps:
            if by_itself:
                after[state].append(following)
            if following not in came:
                came[following] = (state, label)
                todo.append(following)
    stuck = next(sinks_without_rest(model, after), None) or next(circles(after), None)
    return after, LIVENESS if stuck else "", way(stuck) if stuck else []


def sinks_without_rest(model: Model, after: dict[State, list[State]]) -> Iterator[State]:
    """States where nothing happens by itself any more although a room is not over and quiet."""
    return (s for s, following in after.items() if not following and not model.at_rest(s))


def circles(after: dict[State, list[State]]) -> Iterator[State]:
    """States that what happens by itself can go round for ever (Kahn: what is never taken off)."""
    entering = dict.fromkeys(after, 0)
    for following in after.values():
        for state in following:
            entering[state] += 1
    free = [s for s, count in entering.items() if not count]
    while free:
        for state in after[free.pop()]:
            entering[state] -= 1
            if not entering[state]:
                free.append(state)
    return (s for s, count in entering.items() if count)


@pytest.mark.parametrize(
    ("uses", "faults", "states"),
    [
        pytest.param(2, 1, 100_000, marks=pytest.mark.slow),
        (1, 2, 20_000),
        pytest.param(1, 3, 50_000, marks=pytest.mark.slow),
    ],
)
def test_every_interleaving_keeps_the_promises(uses: int, faults: int, states: int) -> None:
    """At least `states` of them: a model whose steps are lost would keep every promise."""
    after, broken, way = explore(Model(uses, faults))
    assert not broken, f"{broken}: {way}"
    print(f"{len(after)} states, {sum(map(len, after.values()))} steps that happen by themselves")
    assert len(after) >= states


@pytest.mark.parametrize(
    ("guard", "promise"),
    [
        ("quiet waits for open writes", "one owner"),
        ("decode waits for Quiesced", "one owner"),
        ("answers carry tickets", "one owner"),
        ("an end is final", "sticky ends"),
        ("Done waits for every write", "handed over whole"),
        ("prefill waits for Taken", "same end"),
        ("a doomed request is told", "conservation"),
        ("inflight has a deadline", LIVENESS),
        ("Cancel is repeated", LIVENESS),
        ("a new life fences the old one", LIVENESS),
    ],
)
def test_a_promise_breaks_without_its_guard(guard: str, promise: str) -> None:
    """Each within one fault, or within a second use of the room number."""
    bounds = ((1, 0), (2, 0), (1, 1))
    assert any(explore(Model(uses, faults, guard))[1] == promise for uses, faults in bounds)
