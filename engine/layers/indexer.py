"""Which cached entries a token attends to: scored against index-K, the best of them by the exact top-k.

Index-K is stored as bfloat16 whatever the model computes in, a checksum beside each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from engine.layers.page import PageLayout, Section
from kernels.ops.index_k import verify_index_k, write_index_k
from kernels.ops.index_logits import index_logits
from kernels.ops.topk import topk

KEYS, SUMS = "index_k", "index_sums"


def index_sections(layers: int, rows: int, dim: int) -> list[Section]:
    """Index-K of `rows` entries a page and their checksums, for each layer that has an indexer."""
    return [
        Section(KEYS, layers, rows, dim, torch.bfloat16),
        Section(SUMS, layers, rows, 1, torch.int32),
    ]


class IndexRows(NamedTuple):
    """Entries: their rows in layer 0's tables of keys and of checksums int64, and numbers int32, all [n]."""

    slots: torch.Tensor
    places: torch.Tensor
    numbers: torch.Tensor


class Choice(NamedTuple):
    """What a step's rows choose from: page tables int32 [rows, n] and numbers of entries int32 [rows].

    `width` is the greatest of them, 0 when there is nothing to choose from.
    """

    table: torch.Tensor
    lengths: torch.Tensor
    width: int


class IndexCache:
    """Index-K of the model's layers `layers`, an entry for each `ratio` tokens, in pages of this layout."""

    def __init__(self, layout: PageLayout, ratio: int, layers: Sequence[int]) -> None:
        self._layout, self._ratio, self.layers = layout, ratio, tuple(layers)

    def rows(self, pages: torch.Tensor, numbers: torch.Tensor) -> IndexRows:
        """Where entries int64 [n] of a sequence lie, each in its page."""
        slots, places = (self._layout.slots(name, pages, numbers) for name in (KEYS, SUMS))
        return IndexRows(slots, places, numbers.to(torch.int32))

    def write(self, pool: torch.Tensor, layer: int, rows: IndexRows, keys: torch.Tensor) -> None:
        write_index_k(*self._tables(pool), keys, *self._of(layer, rows))

    def verify(self, pool: torch.Tensor, layer: int, rows: IndexRows) -> torch.Tensor:
        """bool [n]: whether each row is what was stored there."""
        return verify_index_k(*self._tables(pool), *self._of(layer, rows))

    def choose(
        self, pool: torch.Tensor, layer: int, q: torch.Tensor, weights: torch.Tensor, from_: Choice, k: int
    ) -> torch.Tensor:
        """int64 [rows, k]: numbers of the best entries of each row, below 0 for none.

        q [rows, heads, dim]; weights [rows, heads] hold every scale.
        """
        keys = self._layout.paged(pool, KEYS, layer)
        scores = index_logits(
            q.to(torch.bfloat16).contiguous(), weights.float(), keys, from_.table, from_.lengths, from_.width
        )
        return topk(scores, from_.lengths, k).long()

    def damage(self, pool: torch.Tensor, pages: Sequence[int], tokens: int, layer: int | None = None) -> str:
        """Which index-K of a sequence's first `tokens` tokens is no longer what was stored, as words.

        Empty when all of it is, in layer number `layer` alone or in every one. `pages` hold the entries.
        """
        rows = self._all(pool, pages, tokens)
        places = []
        for number in range(len(self.layers)) if layer is None else (layer,):
            wrong = (~self.verify(pool, number, rows)).nonzero().flatten().tolist()
            if wrong:
                first = wrong[0] * self._ratio
                text = f"layer {self.layers[number]}: {len(wrong)} entries, the first of token {first}"
                places.append(text)
        return "; ".join(places)

    def checksum(self, pool: torch.Tensor, pages: Sequence[int], tokens: int, layer: int) -> torch.Tensor:
        """int64 [1]: the sum of a sequence's checksums in layer number `layer`."""
        _, places, _ = self._of(layer, self._all(pool, pages, tokens))
        return self._tables(pool)[1].index_select(0, places).sum(0, keepdim=True)

    def _all(self, pool: torch.Tensor, pages: Sequence[int], tokens: int) -> IndexRows:
        numbers = torch.arange(tokens // self._ratio, device=pool.device)
        own = torch.tensor(pages, dtype=torch.int64, device=pool.device)
        return self.rows(own[numbers // self._layout.rows(KEYS)], numbers)

    def _tables(self, pool: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._layout.table(pool, KEYS), self._layout.table(pool, SUMS).view(-1)

    def _of(self, layer: int, rows: IndexRows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        keys, sums = (self._layout.entry(n, layer) - self._layout.entry(n, 0) for n in (KEYS, SUMS))
        return rows.slots + keys, rows.places + sums, rows.numbers
