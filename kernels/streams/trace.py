"""The order of a step without a GPU: what would be a race, a bad capture or a reuse too early on one.

While it watches, every operation of torch is a node with the bytes that it reads and writes, as it is
dispatched: nothing is taken from what a step says of itself. A node carries a vector clock: how much of every
stream it runs after. Two nodes that touch the same bytes, one of them writing, must be ordered. Memory that
is dropped is the allocator's of its stream, which may give it to the next who asks there: by then all that
used it must be ordered before.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import torch

from kernels.launch import Launch, observing
from kernels.streams.interface import MAIN
from kernels.streams.memory import Memories, Memory, Span
from kernels.streams.witness import Seen, Touch, Witness

T = TypeVar("T")
Clock = dict[str, int]


class TraceFault(RuntimeError):
    """What no capture would take, or would take and get wrong at every replay."""


@dataclass(frozen=True)
class Named:
    """A launch, and what it says that it shares with other streams."""

    name: str
    reads: list[Span]
    writes: list[Span]


@dataclass(frozen=True)
class Node:
    """One operation; `clock` includes itself. `within`: the launch that it is of."""

    stream: str
    name: str
    clock: Clock
    reads: list[Span]
    writes: list[Span]
    within: Named | None = None

    def before(self, other: Node) -> bool:
        return other.clock.get(self.stream, 0) >= self.clock[self.stream]

    def __str__(self) -> str:
        own = f"{self.name} of {self.within.name}" if self.within else self.name
        return f"{own} ({self.stream})"


class Trace:
    """Runs the work as it comes, so that results are right, and keeps the order that streams would give."""

    captures = True

    def __init__(self, overlap: bool = True) -> None:
        self.overlap = overlap
        self.nodes: list[Node] = []
        self._clocks: dict[str, Counter[str]] = {}
        self._memories = Memories()
        self._dropped: list[Memory] = []
        self._problems: list[str] = []
        self._stream, self._launch = MAIN, Named("", [], [])
        self._watching = False
        self._root: str | None = None
        self._forked: set[str] = set()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Operations inside are seen; what no launch is around is work of MAIN."""
        if self._watching:
            yield
            return
        self._watching = True
        try:
            with Witness(self._before, self._after), observing(self._kernel):
                yield
        finally:
            self._watching = False

    def launch(
        self,
        stream: str,
        name: str,
        work: Callable[[], T],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> T:
        outer = self._stream, self._launch
        self._stream = self._of(stream)
        self._launch = Named(name, self._spans(map(Touch, reads)), self._spans(map(Touch, writes)))
        self._check_forked(name)
        try:
            with self.watch():
                return work()
        finally:
            self._stream, self._launch = outer

    def take(self, stream: str, launches: Sequence[Launch]) -> None:
        """Recorded kernel launches, not run: what each reads and writes is what its host function said."""
        outer, self._stream = self._stream, self._of(stream)
        for made in launches:
            self._kernel(made)
        self._stream = outer

    def _kernel(self, made: Launch) -> None:
        tensors = {name: value for name, value in made.args.items() if isinstance(value, torch.Tensor)}
        reads = [Touch(value) for name, value in tensors.items() if name not in made.writes]
        writes = [Touch(tensors[name]) for name in made.writes]
        self._before(Seen(made.fn.__name__, reads, writes, ""))

    def fork(self, source: str, *targets: str) -> None:
        event = self.record(source)
        for target in targets:
            self.wait(target, event)

    def join(self, target: str, *sources: str) -> None:
        for source in sources:
            self.wait(target, self.record(source))

    def record(self, stream: str) -> Clock:
        return {**self._clock(self._of(stream)), "": int(self._of(stream) in self._forked)}

    def wait(self, stream: str, event: Clock) -> None:
        stream = self._of(stream)
        clock = self._clock(stream)
        for other, reached in event.items():
            clock[other] = max(clock[other], reached)
        if self._root is not None:
            if not event[""]:
                raise TraceFault(f"stream {stream} waits in a capture for what was not captured")
            self._forked.add(stream)

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        """TraceFault when a stream that took part is not joined at the end, or memory stays allocated.

        A graph has a pool of its own, for what is dropped within it. Scratch that is first made in a
        capture and kept would be an address of that pool, which the pool's next graph gives out again.
        """
        self._root, self._forked = MAIN, {MAIN}
        try:
            with self.watch():
                work()
            gc.collect()  # what nobody can reach is not kept
            self._look()
            for other in sorted(self._forked - {MAIN}):
                if self._clocks[MAIN][other] < self._clocks[other][other]:
                    raise TraceFault(f"the capture ends with work of stream {other} that is not joined")
            kept = [memory.name for memory in self._memories.live() if memory.captured]
            if kept:
                raise TraceFault(f"memory of {kept[0]} was allocated inside the capture and is kept")
        finally:
            self._root, self._forked = None, set()
            self._dropped = [memory for memory in self._dropped if not memory.captured]

        def play() -> None:
            with self.watch():
                work()

        return play

    def races(self) -> list[str]:
        """Every pair of nodes that touch the same bytes in no order, one of them writing."""
        found = []
        for ours, theirs in combinations(self._clocks, 2):
            for a, b in self._unordered(ours, theirs):
                for what, one, other in (
                    ("is read by", a.writes, b.reads),
                    ("is overwritten by", a.reads, b.writes),
                    ("is also written by", a.writes, b.writes),
                ):
                    if any(x.meets(y) for x in one for y in other):
                        found.append(f"what {a} uses {what} {b}, unordered")
        return found

    def _unordered(self, ours: str, theirs: str) -> Iterator[tuple[Node, Node]]:
        """Pairs of nodes of two streams. Those that have no order to one node follow one another."""
        others = [node for node in self.nodes if node.stream == theirs]
        at = [node.clock[theirs] for node in others]
        seen = [node.clock.get(ours, 0) for node in others]
        for a in self.nodes:
            if a.stream == ours:
                first = bisect_right(at, a.clock.get(theirs, 0))
                for b in others[first : bisect_left(seen, a.clock[ours])]:
                    yield a, b

    def unnamed(self) -> list[str]:
        """What launches beside MAIN share with other streams and do not name."""
        found = []
        for node in self.nodes:
            if node.within is None or node.stream == MAIN:
                continue
            named = [*node.within.reads, *node.within.writes]
            found += [
                f"{node} does not name what it {what}"
                for what, spans, names in (
                    ("reads", node.reads, named),
                    ("writes", node.writes, node.within.writes),
                )
                for span in spans
                if span.memory.shared(node.stream, what == "writes") and not span.within(names)
            ]
        return list(dict.fromkeys(found))

    def check(self) -> None:
        """TraceFault with every race, all memory given on too early, and what launches do not name."""
        problems = list(dict.fromkeys([*self._problems, *self.races(), *self.unnamed()]))
        if problems:
            raise TraceFault("; ".join(problems))

    def _before(self, seen: Seen) -> None:
        self._look()
        self._check_forked(seen.name)
        if self._root is not None and seen.host:
            raise TraceFault(f"{seen.name} cannot be captured: {seen.host}")
        reads, writes = self._spans(seen.reads), self._spans(seen.writes)
        if reads or writes:
            self._node(seen.name, reads, writes)

    def _after(self, seen: Seen, made: list[torch.Tensor]) -> None:
        """New memory: what was dropped before on this stream may be it."""
        for tensor in made:
            if tensor.layout == torch.strided and tensor.numel():
                self._give(seen.name)
                self._memories.add(tensor, seen.name, self._stream, self._root is not None)
                self._node(seen.name, [], self._spans([Touch(tensor)]))

    def _node(self, name: str, reads: list[Span], writes: list[Span]) -> None:
        clock = self._clock(self._stream)
        clock[self._stream] += 1
        within = self._launch if self._launch.name else None
        self.nodes.append(Node(self._stream, name, dict(clock), reads, writes, within))
        for memory in {span.memory for span in writes}:
            memory.writers.add(self._stream)
        for memory in {span.memory for span in (*reads, *writes)}:
            memory.users[self._stream] = clock[self._stream]
            memory.held |= self._root is not None and not memory.captured

    def _give(self, name: str) -> None:
        """Anything that this stream's allocator has back may be given out now."""
        clock, left = self._clock(self._stream), []
        for memory in self._dropped:
            if memory.owner != self._stream or memory.captured != (self._root is not None):
                left.append(memory)
                continue
            for user, reached in memory.users.items():
                if clock[user] < reached:
                    self._problems.append(
                        f"memory of {memory.name} ({memory.owner}), that {user} uses, is given to {name} "
                        f"({self._stream}), unordered"
                    )
        self._dropped = left

    def _look(self) -> None:
        """Take note of what was dropped since."""
        for memory in self._memories.gone():
            if memory.held:
                self._problems.append(f"{memory.name} is given back, whose address a graph holds")
            elif memory.owner is not None:
                self._dropped.append(memory)

    def _spans(self, touches: Iterator[Touch] | Sequence[Touch]) -> list[Span]:
        return [span for touch in touches if (span := self._memories.span(*touch)) is not None]

    def _check_forked(self, name: str) -> None:
        if self._root is not None and self._stream not in self._forked:
            raise TraceFault(f"{name} on stream {self._stream}, which was not forked from the captured main")

    def _of(self, stream: str) -> str:
        return stream if self.overlap else MAIN

    def _clock(self, stream: str) -> Counter[str]:
        return self._clocks.setdefault(stream, Counter())
