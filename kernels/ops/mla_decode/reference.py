"""DeepSeek-V2, https://arxiv.org/abs/2405.04434, section 2.1: K is [latent | rope], V is the latent."""

from __future__ import annotations

import torch

from kernels.ops.splits import SplitWorkspace


def check(
    q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, values: int
) -> None:
    fits = (
        q.dim() == 3
        and cache.dim() == 3
        and q.shape[2] == cache.shape[2] >= values >= 1
        and table.dim() == 2
        and lengths.dim() == 1
        and table.shape[0] == q.shape[0] == lengths.shape[0]
        and cache.stride()[1:] == (cache.shape[2], 1)
    )
    if not fits or q.dtype != cache.dtype or table.dtype != torch.int32 or lengths.dtype != torch.int32:
        raise ValueError(
            f"q {list(q.shape)} {q.dtype}, cache {list(cache.shape)} {cache.dtype} of {values} values, "
            f"table {list(table.shape)} {table.dtype}, lengths {list(lengths.shape)} {lengths.dtype}"
        )


def mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    values: int,
    scale: float,
    workspace: SplitWorkspace | None = None,
    target_ctas: int | None = None,
) -> torch.Tensor:
    """[batch, heads, values] for q [batch, heads, dim] over each row's `lengths` entries of cache.

    cache [pages, page, dim] is a layer's view of a pool: its pages may lie apart. The first `values` of an
    entry are its value. table int32 [batch, pages of a row], lengths int32 [batch]; a row of length 0 is
    zero. `workspace` and `target_ctas` are of the kernel.
    """
    check(q, cache, table, lengths, values)
    out = torch.zeros((*q.shape[:2], values), dtype=q.dtype, device=q.device)
    page = cache.shape[1]
    if lengths.numel() and int(lengths.max()) > table.shape[1] * page:
        raise ValueError(f"{table.shape[1]} pages of {page} do not cover {int(lengths.max())} tokens")
    for row, length in enumerate(lengths.tolist()):
        if length > 0:
            own = cache[table[row, : -(-length // page)].long()].flatten(0, 1)[:length].float()
            weights = torch.softmax(q[row].float() @ own.T * scale, -1)
            out[row] = (weights @ own[:, :values]).to(q.dtype)
    return out
