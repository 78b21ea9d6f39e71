"""A KV pool with sequences scattered over it, and attention over them in float64 without pages."""

from __future__ import annotations

import torch

PAGE = 4


def scattered(
    lengths: list[int], kv_heads: int, dim: int, dtype: torch.dtype, layers: int = 2, seed: int = 0
) -> tuple[torch.Tensor, list[list[int]], list[torch.Tensor]]:
    """pool, pages per sequence, and per sequence its layer-1 K and V as [2, kv_heads, length, dim].

    Slots that belong to no token hold huge values, so that reading one shows.
    """
    g = torch.Generator().manual_seed(seed)
    counts = [-(-n // PAGE) for n in lengths]
    free = torch.randperm(sum(counts) + 3, generator=g).tolist()
    pool = torch.full((len(free), kv_heads, layers, 2, PAGE, dim), 1e4, dtype=dtype)
    pages, kv = [], []
    for length, count in zip(lengths, counts, strict=True):
        own = [free.pop() for _ in range(count)]
        values = torch.randn(2, kv_heads, length, dim, generator=g).to(dtype)
        for t in range(length):
            pool[own[t // PAGE], :, 1, :, t % PAGE] = values[:, :, t].transpose(0, 1)
        pages.append(own)
        kv.append(values)
    return pool, pages, kv


def attention64(q: torch.Tensor, kv: torch.Tensor, start: int, scale: float) -> torch.Tensor:
    """Causal attention of q [tokens, heads, dim] at start.. over kv [2, kv_heads, length, dim], float64."""
    q, kv = q.double(), kv.double()
    group = q.shape[1] // kv.shape[1]
    out = torch.empty_like(q)
    for t in range(q.shape[0]):
        seen = start + t + 1
        for h in range(q.shape[1]):
            k, v = kv[:, h // group, :seen]
            out[t, h] = torch.softmax(k @ q[t, h] * scale, 0) @ v
    return out
