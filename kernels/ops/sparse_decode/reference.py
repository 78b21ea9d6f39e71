"""DeepSeek's sparse attention: V3.2 reads chosen latents, V4 a window and compressed entries."""

from __future__ import annotations

import torch

from kernels.ops.splits import SplitWorkspace


def check(
    q: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    slots: tuple[torch.Tensor, torch.Tensor],
    values: int,
    sinks: torch.Tensor | None,
) -> None:
    for cache, own in zip(caches, slots, strict=True):
        fits = (
            q.dim() == 3
            and cache.dim() == 2
            and cache.is_contiguous()
            and q.shape[2] == cache.shape[1] >= values >= 1
            and own.dim() == 2
            and own.shape[0] == q.shape[0]
        )
        if not fits or q.dtype != cache.dtype or own.dtype != torch.int64:
            raise ValueError(
                f"q {list(q.shape)} {q.dtype}, cache {list(cache.shape)} {cache.dtype} of {values} values, "
                f"slots {list(own.shape)} {own.dtype}"
            )
    if sinks is not None and sinks.shape != q.shape[1:2]:
        raise ValueError(f"sinks {list(sinks.shape)} are not one for each of {q.shape[1]} heads")


def sparse_decode(
    q: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    slots: tuple[torch.Tensor, torch.Tensor],
    values: int,
    scale: float,
    sinks: torch.Tensor | None = None,
    workspace: SplitWorkspace | None = None,
    target_ctas: int | None = None,
) -> torch.Tensor:
    """[batch, heads, values] for q [batch, heads, dim] over the rows of both caches that slots name.

    Each cache is [rows, dim], the first `values` of a row are its value; each of slots is int64 [batch, n],
    below 0 for none, anywhere. `sinks` [heads] are logits that take part in the softmax and have no value.
    A row of the batch without entries is zero. `workspace` and `target_ctas` are of the kernel.
    """
    check(q, caches, slots, values, sinks)
    out = torch.zeros((*q.shape[:2], values), dtype=q.dtype, device=q.device)
    for row in range(q.shape[0]):
        own = [cache[s[row][s[row] >= 0]] for cache, s in zip(caches, slots, strict=True)]
        keys = torch.cat(own).float()
        if not keys.shape[0]:
            continue
        scores = q[row].float() @ keys.T * scale
        if sinks is not None:
            scores = torch.cat((scores, sinks.float()[:, None]), 1)
        weights = torch.softmax(scores, -1)[:, : keys.shape[0]]
        out[row] = (weights @ keys[:, :values]).to(q.dtype)
    return out
