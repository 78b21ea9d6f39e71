"""DeepSeek-V3.2, https://github.com/deepseek-ai/DeepSeek-V3.2-Exp, section "DeepSeek Sparse Attention"."""

from __future__ import annotations

import torch


def check(
    q: torch.Tensor,
    weights: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    width: int,
) -> None:
    fits = (
        q.dim() == 3
        and cache.dim() == 3
        and cache.stride()[1:] == (cache.shape[2], 1)
        and weights.shape == q.shape[:2]
        and q.shape[2] == cache.shape[2]
        and table.dim() == 2
        and lengths.dim() == 1
        and table.shape[0] == q.shape[0] == lengths.shape[0]
        and 1 <= width <= table.shape[1] * cache.shape[1]
    )
    if not fits or q.dtype != cache.dtype or table.dtype != torch.int32 or lengths.dtype != torch.int32:
        raise ValueError(
            f"q {list(q.shape)} {q.dtype}, weights {list(weights.shape)}, cache {list(cache.shape)} "
            f"{cache.dtype}, table {list(table.shape)} {table.dtype}, lengths {list(lengths.shape)}, "
            f"width {width}"
        )


def index_logits(
    q: torch.Tensor,
    weights: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    width: int,
) -> torch.Tensor:
    """float32 [rows, width]: sum over heads of weights * relu(q . key) for each of a row's `lengths` entries.

    q [rows, heads, dim]; weights float32 [rows, heads], which hold every scale; cache [pages, page, dim],
    a layer's view of a pool;
    table int32 [rows, pages of a row]. Minus infinity from a row's length on.
    """
    check(q, weights, cache, table, lengths, width)
    out = torch.full((q.shape[0], width), float("-inf"), device=q.device)
    page = cache.shape[1]
    for row, length in enumerate(lengths.clamp(0, width).tolist()):
        own = table[row, : -(-length // page)].long()
        keys = cache.index_select(0, own).flatten(0, 1)[:length].float()
        scores = torch.relu(q[row].float() @ keys.T)
        out[row, :length] = (scores * weights[row].float()[:, None]).sum(0)
    return out
