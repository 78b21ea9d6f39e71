"""Which part of a model this rank holds, and how it meets the other ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.core.errors import ModelError
from engine.core.types import split_heads
from engine.weights import ModelConfig


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
    """`heads` and `kv_heads` are half-open ranges of the whole model's heads; so are the other two."""

    comm: Comm
    dtype: torch.dtype
    device: torch.device
    kv_heads: tuple[int, int]
    heads: tuple[int, int]
    intermediate: tuple[int, int]
    vocab: tuple[int, int]

    @classmethod
    def of(cls, config: ModelConfig, comm: Comm, dtype: torch.dtype, device: torch.device) -> Shard:
        """ModelError when a rank would be left without a KV head."""
        rank, tp = comm.rank, comm.tp
        if tp > config.kv_heads:
            raise ModelError(
                "tp_too_large",
                f"The model has {config.kv_heads} key/value heads, so at most {config.kv_heads} ranks can "
                f"share it, not {tp}.",
                f"Start with --tp {config.kv_heads} or less.",
            )
        first, last = split_heads(config.kv_heads, tp, rank)
        group = config.heads // config.kv_heads
        return cls(
            comm,
            dtype,
            device,
            (first, last),
            (first * group, last * group),
            split_heads(config.intermediate_size, tp, rank),
            split_heads(config.vocab_size, tp, rank),
        )
