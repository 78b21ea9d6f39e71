"""Everything at once and in order: streams of a machine that has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


class SerialStreams:
    """The CPU's backend. Nothing is recorded: what was captured is computed again."""

    overlap = False
    captures = False

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

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        return work
