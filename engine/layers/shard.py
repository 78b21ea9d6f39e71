"""Which part of a model this rank holds, on what it computes, and how it meets the other ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.core.errors import ModelError
from engine.core.types import split_heads
from engine.weights import ModelConfig
from kernels.streams.interface import Streams


class Comm(Protocol):
    """What layers need of a tensor-parallel group."""

    @property
    def rank(self) -> int: ...

    @property
    def tp(self) -> int: ...

    def all_reduce(self, t: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks, in place."""
        ...

    def gather_cat(self, t: torch.Tensor) -> torch.Tensor | None:
        """Parts of the last dimension, sizes may differ, joined on rank 0; None elsewhere."""
        ...


@dataclass(frozen=True)
class Shard:
    """`heads` and `kv_heads` are half-open ranges of the whole model's heads; so are the last two. What
    layers compute beside their main work is launched on `streams`."""

    comm: Comm
    dtype: torch.dtype
    device: torch.device
    streams: Streams
    kv_heads: tuple[int, int]
    heads: tuple[int, int]
    intermediate: tuple[int, int]
    vocab: tuple[int, int]

    def agreed(self, rows: int) -> int:
        """The most rows that any rank asks for; every rank calls it. They hold weights of different shapes,
        and a machine may want more rows for one than for another, but a step has as many on each rank."""
        if self.comm.tp == 1:
            return rows
        asked = torch.zeros(self.comm.tp, device=self.device)
        asked[self.comm.rank] = rows
        return int(self.comm.all_reduce(asked).max())

    @classmethod
    def of(
        cls, config: ModelConfig, comm: Comm, dtype: torch.dtype, device: torch.device, streams: Streams
    ) -> Shard:
        """ModelError when a rank would be left without a part of the attention."""
        rank, tp, parts = comm.rank, comm.tp, config.parts
        if tp > parts:
            raise ModelError(
                "tp_too_large",
                f"The model has {parts} {_parts(config)}, so at most {parts} ranks can share it, not {tp}.",
                f"Start with --tp {parts} or less.",
            )
        first, last = split_heads(parts, tp, rank)
        group = config.heads // parts
        shared = config.mla is not None or config.compressed is not None
        return cls(
            comm,
            dtype,
            device,
            streams,
            (0, 1) if shared else (first, last),
            (first * group, last * group),
            split_heads(config.intermediate_size, tp, rank),
            split_heads(config.vocab_size, tp, rank),
        )

    def part(self, size: int) -> tuple[int, int]:
        """This rank's half-open range of `size` things that the ranks share out."""
        return split_heads(size, self.comm.tp, self.comm.rank)


def _parts(config: ModelConfig) -> str:
    """What `config.parts` counts."""
    if config.compressed is not None:
        return "groups of output heads"
    return "key/value heads" if config.mla is None else "attention heads"
