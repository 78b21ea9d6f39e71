"""A rank's checksums of the pages in its pool, a slice at a time between its other work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from engine.transfer.integrity import layers_per_sum
from kernels.ops.page_checksum import page_checksum

SLICE_BYTES = 16 << 20


@dataclass(eq=False)
class Job:
    """Sums of consecutive logical pages of a room that a rank is asked for; worked off in slices."""

    pages: Sequence[int]
    first: int
    tokens: int
    at: int = 0
    parts: list[bytes] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.at >= len(self.pages)

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)


class Summer:
    """A rank's sums over its pool [pages, kv_heads, layers, k/v, page_size, dim]; of the agent's thread.

    Of `opaque` pages all counts: nobody here knows which bytes are of which token.
    """

    def __init__(self, pool: torch.Tensor, first_head: int, opaque: bool = False) -> None:
        self._pool, self._head, self._opaque = pool, first_head, opaque
        self._layers = layers_per_sum(pool.shape[2])
        self._slice = max(1, SLICE_BYTES // max(1, pool[0].nbytes))

    def advance(self, job: Job) -> None:
        """Sum one slice of the job's pages."""
        end = min(job.at + self._slice, len(job.pages))
        pages, first = job.pages[job.at : end], job.first + job.at
        tokens = (first + len(pages)) * self._pool.shape[4] if self._opaque else job.tokens
        sums = page_checksum(self._pool, pages, first, self._head, tokens, self._layers)
        job.parts.append(sums.cpu().numpy().astype("<u8", copy=False).tobytes())
        job.at = end

    def flip(self, page: int) -> None:
        """A drill: invert one bit of a value that the first head has stored for the page's first token."""
        if self._head == 0 and self._pool.shape[1]:
            bits = self._pool.view(torch.int32 if self._pool.element_size() == 4 else torch.int16)
            bits[page, 0, self._pool.shape[2] // 2, -1, 0, 0] ^= 1 << (8 * self._pool.element_size() - 2)
