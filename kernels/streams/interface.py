"""The interface of streams. A step is written once against it and runs on any of its backends.

A stream is a name. Work of one stream runs in its order; work of two streams has no order but by `fork`,
`join`, or an event: program text says nothing. Every launch names what it reads and writes, which the trace
holds to that order and the others take for documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch

T = TypeVar("T")
MAIN = "main"


class Streams(Protocol):
    """`overlap` off puts all work on one stream, in the order of the program."""

    overlap: bool

    def launch(
        self,
        stream: str,
        name: str,
        work: Callable[[], T],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> T:
        """`work` on the stream; its tensors are of this stream alone unless they are named elsewhere."""
        ...

    def fork(self, source: str, *targets: str) -> None:
        """What the targets are given from now on runs after what the source was given so far."""
        ...

    def join(self, target: str, *sources: str) -> None:
        """What the target is given from now on runs after what the sources were given so far."""
        ...

    def record(self, stream: str) -> Any:
        """An event: what the stream was given so far."""
        ...

    def wait(self, stream: str, event: Any) -> None:
        """What the stream is given from now on runs after the event."""
        ...

    def empty(self, stream: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Memory of the stream's allocator; given back by `release`, and then anybody's who asks on it."""
        ...

    def release(self, stream: str, tensor: torch.Tensor) -> None: ...

    def capture(self, stream: str = MAIN) -> AbstractContextManager[Any]:
        """What is launched inside is recorded to be replayed; yields what replays it."""
        ...
