"""CUDA streams and graphs.

PyTorch's allocator may give a released block to its own stream at once, while another stream still reads it.
Nothing here guards against that: the trace shows that no step does it. In a capture it allocates from the
pool that all graphs of these streams share, so they are to be played one at a time, on one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from kernels.streams.interface import MAIN

T = TypeVar("T")


class CudaStreams:
    """`main` is the stream that is current when this is made; the others are made here, before a capture."""

    captures = True

    def __init__(
        self, names: Sequence[str], device: torch.device | str = "cuda", overlap: bool = True
    ) -> None:
        self.overlap = overlap
        self._device = torch.device(device)
        self._streams = {name: torch.cuda.Stream(self._device) for name in names if name != MAIN}
        self._streams[MAIN] = torch.cuda.current_stream(self._device)
        self._pool: Any = None

    def _of(self, name: str) -> torch.cuda.Stream:
        if name not in self._streams:
            raise ValueError(f"stream {name} was not made at the start; there are {', '.join(self._streams)}")
        return self._streams[name if self.overlap else MAIN]

    def launch(
        self,
        stream: str,
        name: str,
        work: Callable[[], T],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> T:
        with torch.cuda.stream(self._of(stream)):
            return work()

    def fork(self, source: str, *targets: str) -> None:
        event = self.record(source)
        for target in targets:
            self.wait(target, event)

    def join(self, target: str, *sources: str) -> None:
        for source in sources:
            self.wait(target, self.record(source))

    def record(self, stream: str) -> torch.cuda.Event:
        event = torch.cuda.Event()
        event.record(self._of(stream))
        return event

    def wait(self, stream: str, event: torch.cuda.Event) -> None:
        self._of(stream).wait_event(event)

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        """The order of other threads' calls to CUDA is not recorded; they may make any meanwhile."""
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        outer = self._streams[MAIN]
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self._streams[MAIN] = torch.cuda.current_stream(self._device)
            try:
                work()
            finally:
                self._streams[MAIN] = outer
        return graph.replay
