"""Everything at once and in order: streams of a machine that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from kernels.streams.interface import MAIN

T = TypeVar("T")


class SerialStreams:
    """The CPU's backend."""

    overlap = False

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = device

    def launch(
        self,
        stream: str,
        name: str,
        work: Callable[[], T],
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> T:
        return work()

    def fork(self, source: str, *targets: str) -> None:
        pass

    def join(self, target: str, *sources: str) -> None:
        pass

    def record(self, stream: str) -> None:
        pass

    def wait(self, stream: str, event: None) -> None:
        pass

    def empty(self, stream: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device=self._device)

    def release(self, stream: str, tensor: torch.Tensor) -> None:
        pass

    @contextmanager
    def capture(self, stream: str = MAIN) -> Iterator[None]:
        """Nothing is recorded: what is launched inside has run."""
        yield
