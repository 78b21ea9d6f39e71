"""The order of a step without a GPU: what would be a race, a bad capture or a reuse too early on one.

Each launch carries a vector clock: how much of every stream it runs after. Two launches that touch the same
bytes, one of them writing, must be ordered. Memory is given out as a caching allocator does: a released block
goes to the next who asks on its stream, whether or not other streams are done with it, so a missing join
shows as a race with the block's next owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import torch

from kernels.launch import Launch
from kernels.streams.interface import MAIN

T = TypeVar("T")
Clock = dict[str, int]
Range = tuple[int, int]


class TraceFault(RuntimeError):
    """What no capture would take, or would take and get wrong at every replay."""


@dataclass(frozen=True)
class Node:
    """One launch; `clock` includes itself."""

    stream: str
    name: str
    clock: Clock
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]

    def before(self, other: Node) -> bool:
        return other.clock.get(self.stream, 0) >= self.clock[self.stream]


@dataclass(frozen=True)
class Block:
    """Memory of a stream's allocator; `captured` when it is of a graph's own pool."""

    tensor: torch.Tensor
    captured: bool

    @property
    def range(self) -> Range:
        return self.tensor.data_ptr(), self.tensor.data_ptr() + self.tensor.numel()


class Trace:
    """Runs the work as it comes, so that results are right, and keeps the order that streams would give."""

    overlap = True

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = device
        self._clocks: dict[str, Counter[str]] = {}
        self._free: dict[tuple[str, int], list[Block]] = {}
        self._owned: dict[int, tuple[str, Block]] = {}
        self._root: str | None = None
        self._forked: set[str] = set()
        self._held: list[Range] = []
        self._kept: list[torch.Tensor] = []  # an address must stay that of one tensor
        self.nodes: list[Node] = []

    def launch(
        self,
        stream: str,
        name: str,
        work: Callable[[], T],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> T:
        if self._root is not None and stream not in self._forked:
            raise TraceFault(
                f"{name} on stream {stream}, which was not forked from the captured {self._root}"
            )
        clock = self._clock(stream)
        clock[stream] += 1
        node = Node(stream, name, dict(clock), _ranges(reads), _ranges(writes))
        self.nodes.append(node)
        self._kept += (*reads, *writes)
        if self._root is not None:
            self._held += (*node.reads, *node.writes)
        return work()

    def take(self, stream: str, launches: Sequence[Launch]) -> None:
        """Recorded kernel launches, not run: what each reads and writes is what its host function said."""
        for made in launches:
            tensors = {name: value for name, value in made.args.items() if isinstance(value, torch.Tensor)}
            reads = [value for name, value in tensors.items() if name not in made.writes]
            writes = [tensors[name] for name in made.writes]
            self.launch(stream, made.fn.__name__, lambda: None, reads, writes)

    def fork(self, source: str, *targets: str) -> None:
        event = self.record(source)
        for target in targets:
            self.wait(target, event)

    def join(self, target: str, *sources: str) -> None:
        for source in sources:
            self.wait(target, self.record(source))

    def record(self, stream: str) -> Clock:
        return {**self._clock(stream), "": int(stream in self._forked)}

    def wait(self, stream: str, event: Clock) -> None:
        clock = self._clock(stream)
        for other, reached in event.items():
            clock[other] = max(clock[other], reached)
        if self._root is not None:
            if not event[""]:
                raise TraceFault(f"stream {stream} waits in a capture for what was not captured")
            self._forked.add(stream)

    def empty(self, stream: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        size = torch.Size(shape).numel() * dtype.itemsize
        free = self._free.get((stream, size), [])
        block = free.pop() if free else Block(self._new(size), self._root is not None)
        tensor = block.tensor.view(dtype).view(tuple(shape))
        self._owned[tensor.data_ptr()] = (stream, block)
        return tensor

    def release(self, stream: str, tensor: torch.Tensor) -> None:
        owner, block = self._owned.pop(tensor.data_ptr(), (None, None))
        if block is None or owner != stream:
            raise TraceFault(f"release on stream {stream} of memory that is {owner or 'no stream'}'s")
        if not block.captured and _meet([block.range], self._held):
            raise TraceFault(f"release on stream {stream} of memory whose address a graph holds")
        self._free.setdefault((stream, block.tensor.numel()), []).append(block)

    @contextmanager
    def capture(self, stream: str = MAIN) -> Iterator[Trace]:
        """TraceFault at the end when a stream that took part is not joined, or memory stays allocated.

        A graph has a pool of its own, for what is given back within it. Scratch that is first made in a
        capture and kept would be an address of that pool, which the pool's next graph gives out again.
        """
        self._root, self._forked = stream, {stream}
        outside, self._free = self._free, {}
        try:
            yield self
            for other in self._forked - {stream}:
                missing = self._clocks[other][other] - self._clocks[stream][other]
                if missing:
                    raise TraceFault(f"the capture ends with {missing} launches of stream {other} not joined")
            kept = [owner for owner, block in self._owned.values() if block.captured]
            if kept:
                raise TraceFault(f"memory of stream {kept[0]} was allocated inside the capture and is kept")
        finally:
            self._root, self._forked, self._free = None, set(), outside

    def races(self) -> list[str]:
        """Every pair of launches that touch the same bytes in no order, one of them writing."""
        found = []
        for a, b in combinations(self.nodes, 2):
            if a.before(b) or b.before(a):
                continue
            for what, ours, theirs in (
                ("is read by", a.writes, b.reads),
                ("is overwritten by", a.reads, b.writes),
                ("is also written by", a.writes, b.writes),
            ):
                if _meet(ours, theirs):
                    found.append(f"what {a.name} ({a.stream}) uses {what} {b.name} ({b.stream}), unordered")
        return found

    def check(self) -> None:
        """TraceFault with every race."""
        races = self.races()
        if races:
            raise TraceFault("; ".join(races))

    def _clock(self, stream: str) -> Counter[str]:
        return self._clocks.setdefault(stream, Counter())

    def _new(self, size: int) -> torch.Tensor:
        return torch.empty(max(size, 16), dtype=torch.uint8, device=self._device)


def _ranges(tensors: Sequence[torch.Tensor]) -> tuple[Range, ...]:
    """The bytes from the first to the last of each view."""
    found = []
    for tensor in tensors:
        if tensor.numel():
            extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            found.append((tensor.data_ptr(), tensor.data_ptr() + extent * tensor.element_size()))
    return tuple(found)


def _meet(ours: Sequence[Range], theirs: Sequence[Range]) -> bool:
    return any(a < d and c < b for a, b in ours for c, d in theirs)
