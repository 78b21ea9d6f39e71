"""Samples of index-K while it is in use: whether it still is what was stored, and the same on every rank.

A race that overwrites index-K gives no error: the model reads other entries and its answers become worse.
"""

from __future__ import annotations

import torch

from engine.core.errors import EngineError
from engine.core.types import Batch
from engine.layers.indexer import IndexCache
from engine.layers.shard import Comm


class Audit:
    """Every `every` steps one layer of one sequence of the step; every rank looks at the same."""

    def __init__(
        self, index: IndexCache, pool: torch.Tensor, state_pages: int, comm: Comm, every: int
    ) -> None:
        self._index, self._pool, self._state_pages = index, pool, state_pages
        self._comm, self._every = comm, every
        self._steps = 0

    def after(self, batch: Batch) -> None:
        """Count a step that was run; EngineError when its sample is damaged, which ends the engine."""
        self._steps += 1
        turn, left = divmod(self._steps, self._every)
        if left:
            return
        one, layer = batch.slices[turn % len(batch.slices)], turn % len(self._index.layers)
        pages, tokens = one.pages[self._state_pages :], one.start + len(one.tokens)
        own = self._index.checksum(self._pool, pages, tokens, layer)
        every = self._comm.all_reduce(own.clone())
        damage = self._index.damage(self._pool, pages, tokens, layer)
        if damage:
            raise self._error(f"is not what it has stored there: {damage}")
        if int(every) != self._comm.tp * int(own):
            number = self._index.layers[layer]
            raise self._error(f"differs from that of other ranks in layer {number}, of {tokens} tokens")

    def _error(self, what: str) -> EngineError:
        return EngineError("index_k_corrupt", f"Index-K of rank {self._comm.rank} {what}.")
