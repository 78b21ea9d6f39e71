"""Which bytes a tensor is, and how long its memory lives, whatever the machine's allocator does with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import _disable_current_modes


class Lifetime:
    """Of a storage, which this does not keep: whether anything still does."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._weak = storage._weak_ref()

    @property
    def ended(self) -> bool:
        return bool(torch.UntypedStorage._expired(self._weak))

    def __del__(self) -> None:
        torch.UntypedStorage._free_weak_ref(self._weak)


@dataclass(eq=False)
class Memory:
    """One storage. `owner`: the stream that made it, none when it is from before; `captured` when it is of a
    graph's own pool; `held` when a graph uses it that did not make it. `users`: how far each stream has come
    with work on it;
    `writers`: which have changed it."""

    name: str
    lifetime: Lifetime
    owner: str | None = None
    captured: bool = False
    held: bool = False
    users: Counter[str] = field(default_factory=Counter)
    writers: set[str] = field(default_factory=set)

    def shared(self, stream: str, writes: bool) -> bool:
        """Whether another stream writes what this one uses, or uses what this one writes; what it has made
        itself it hands on as a result."""
        others = (self.users.keys() if writes else self.writers) - {stream}
        return bool(others) and self.owner != stream


@dataclass(frozen=True)
class Span:
    """Bytes of one memory: half-open `runs` int64 [n, 2] from the storage's beginning."""

    memory: Memory
    runs: torch.Tensor

    def meets(self, other: Span) -> bool:
        if self.memory is not other.memory:
            return False
        ours, theirs = self.runs[:, None], other.runs[None]
        return bool(((ours[..., 0] < theirs[..., 1]) & (theirs[..., 0] < ours[..., 1])).any())

    def within(self, others: list[Span]) -> bool:
        """Whether each run lies in one run of the others."""
        runs = [other.runs for other in others if other.memory is self.memory]
        if not runs:
            return False
        theirs = torch.cat(runs)[None]
        ours = self.runs[:, None]
        inside = (ours[..., 0] >= theirs[..., 0]) & (ours[..., 1] <= theirs[..., 1])
        return bool(inside.any(1).all())


class Memories:
    """All that was seen of storages; one that is gone is told once."""

    def __init__(self) -> None:
        self._live: dict[int, Memory] = {}

    def span(self, tensor: torch.Tensor, rows: torch.Tensor | None = None) -> Span | None:
        """The bytes of a view, of these indices of its first dimension alone when `rows` names some; None
        for no bytes, and for the opaque layout of a library, in which only weights are kept."""
        if tensor.layout != torch.strided or not tensor.numel() or (rows is not None and not rows.numel()):
            return None
        storage = tensor.untyped_storage()
        memory = self._live.get(storage._cdata)
        if memory is None:
            memory = self.add(tensor, "memory from before")
        with _disable_current_modes():  # what is computed here is no part of the step
            return Span(memory, _runs(tensor, rows))

    def add(
        self, tensor: torch.Tensor, name: str, owner: str | None = None, captured: bool = False
    ) -> Memory:
        storage = tensor.untyped_storage()
        memory = Memory(name, Lifetime(storage), owner, captured)
        self._live[storage._cdata] = memory
        return memory

    def gone(self) -> list[Memory]:
        """What has been dropped since this was last asked."""
        found = {key: memory for key, memory in self._live.items() if memory.lifetime.ended}
        for key in found:
            del self._live[key]
        return list(found.values())

    def live(self) -> list[Memory]:
        return list(self._live.values())


def _runs(tensor: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    size = tensor.element_size()
    first = tensor.storage_offset() * size
    dims = [(n, stride * size) for n, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    length = size
    while len(dims) > (rows is not None) and (dims[-1][0] == 1 or dims[-1][1] in (length, 0)):
        n, stride = dims.pop()
        length *= n if stride else 1
    starts = torch.tensor([first])
    for at, (n, stride) in enumerate(dims):
        own = rows.reshape(-1).cpu() if at == 0 and rows is not None else torch.arange(n if stride else 1)
        starts = (starts[:, None] + own[None] * stride).reshape(-1)
    return torch.stack((starts, starts + length), 1)
