"""CUDA streams and graphs.

PyTorch's allocator may give a released block to its own stream at once, while another stream still reads it;
`release` therefore tells it every stream that was launched with the tensor. In a capture it allocates from
the graph's own pool, whose addresses the graph holds, and nothing else may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from kernels.streams.interface import MAIN

T = TypeVar("T")


class CudaStreams:
    """`main` is the stream that is current when this is made; the others are made here, before a capture."""

    def __init__(
        self, names: Sequence[str], device: torch.device | str = "cuda", overlap: bool = True
    ) -> None:
        self.overlap = overlap
        self._device = torch.device(device)
        self._streams = {name: torch.cuda.Stream(self._device) for name in names if name != MAIN}
        self._streams[MAIN] = torch.cuda.current_stream(self._device)
        self._users: dict[int, set[str]] = {}

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
        for tensor in (*reads, *writes):
            if tensor.data_ptr() in self._users:
                self._users[tensor.data_ptr()].add(stream)
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

    def empty(self, stream: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        with torch.cuda.stream(self._of(stream)):
            tensor = torch.empty(tuple(shape), dtype=dtype, device=self._device)
        self._users[tensor.data_ptr()] = {stream}
        return tensor

    def release(self, stream: str, tensor: torch.Tensor) -> None:
        for user in self._users.pop(tensor.data_ptr(), set()) - {stream}:
            tensor.record_stream(self._of(user))

    @contextmanager
    def capture(self, stream: str = MAIN) -> Iterator[torch.cuda.CUDAGraph]:
        """Yields the graph, to be replayed after the block; `stream` is a stream of the capture's own.

        Side streams take part from the first fork on and must be joined again.
        """
        graph = torch.cuda.CUDAGraph()
        outer = self._streams[stream]
        with torch.cuda.graph(graph):
            self._streams[stream] = torch.cuda.current_stream(self._device)
            try:
                yield graph
            finally:
                self._streams[stream] = outer
