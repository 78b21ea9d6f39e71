"""The interface of streams. A step is written once against it and runs on any of its backends.

A stream is a name. Work of one stream runs in its order; work of two streams has no order but by `fork`,
`join`, or an event: program text says nothing. What is computed outside of a launch is work of MAIN.

Memory is of the stream whose work made it. It may be dropped once the streams that use it are joined into
its own: from then on its allocator gives it to whoever asks there next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch

T = TypeVar("T")
MAIN, SIDE = "main", "side"


class Streams(Protocol):
    """`overlap` off puts all work on one stream, in the order of the program. `captures`: what is captured
    here is recorded, and its order is fixed for every time that it is played."""

    overlap: bool
    captures: bool

    def launch(
        self,
        stream: str,
        name: str,
        work: Callable[[], T],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> T:
        """`work` on the stream. It names what it shares with work of other streams: what it reads of theirs,
        what it writes that they use. The trace holds it to that."""
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

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        """What plays `work`, recorded once, again: on the same memory, with whatever it holds then.

        `work` reads no value of it on the host, and leaves its result in memory from before the capture.
        Whether it has run when this returns, the backend does not say.
        """
        ...
