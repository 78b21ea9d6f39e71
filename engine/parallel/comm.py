"""Tensor-parallel collectives of one engine: gloo on CPU, nccl on GPU, nothing at all for one rank."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from engine.core.errors import RankLost

log = logging.getLogger("pdctl.engine")


class Comm:
    """Collectives over `tp` ranks. Every call must be made by all ranks in the same order."""

    def __init__(
        self, rank: int, tp: int, store: str = "", device: str = "cpu", timeout: float = 60.0
    ) -> None:
        """`store` is a file path that all ranks of this life share; unused when tp is 1."""
        self.rank = rank
        self.tp = tp
        self._known_widths: dict[int, list[int]] = {}
        if tp > 1:
            self._call(
                dist.init_process_group,
                backend="nccl" if device.startswith("cuda") else "gloo",
                init_method=f"file://{store}",
                rank=rank,
                world_size=tp,
                timeout=timedelta(seconds=timeout),
            )

    def _call(self, collective: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Gloo, nccl and the store raise RuntimeError and its kin, whether the other rank died or a tensor
        does not fit; RankLost says no more than which call it was, the log has what the library said."""
        try:
            collective(*args, **options)
        except RuntimeError as error:
            what = f"rank {self.rank}: the collective {collective.__name__}"
            log.exception("%s failed", what)
            raise RankLost(what) from error

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over ranks, in place; returns its argument."""
        if self.tp > 1:
            self._call(dist.all_reduce, tensor)
        return tensor

    def gather_cat(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Concatenate the ranks' tensors along the last dimension on rank 0; None on the others.

        Shapes are equal but for the last dimension, which may be uneven over ranks.
        """
        if self.tp == 1:
            return tensor
        sizes = self._widths(tensor)
        padded = tensor.new_zeros((*tensor.shape[:-1], max(sizes)))
        padded[..., : tensor.shape[-1]] = tensor
        parts = [torch.empty_like(padded) for _ in range(self.tp)] if self.rank == 0 else None
        self._call(dist.gather, padded, parts, dst=0)
        if parts is None:
            return None
        return torch.cat([part[..., :size] for part, size in zip(parts, sizes, strict=True)], dim=-1)

    def _widths(self, tensor: torch.Tensor) -> list[int]:
        """The ranks' last dimensions; asked once for each local width, since a model's split is fixed."""
        mine = tensor.shape[-1]
        if mine not in self._known_widths:
            width = torch.tensor([mine], dtype=torch.int64, device=tensor.device)
            widths = [torch.empty_like(width) for _ in range(self.tp)]
            self._call(dist.all_gather, widths, width)
            self._known_widths[mine] = [int(w) for w in widths]
        return self._known_widths[mine]

    def close(self) -> None:
        if self.tp > 1:
            dist.destroy_process_group()
