"""A stable sort: which entries a sparse attention reads must not depend on how the scores came about."""

from __future__ import annotations

import torch


def check(scores: torch.Tensor, lengths: torch.Tensor, k: int) -> None:
    if scores.dim() != 2 or lengths.shape != scores.shape[:1] or k < 1:
        raise ValueError(f"scores {list(scores.shape)}, lengths {list(lengths.shape)}, k {k}")
    if scores.dtype != torch.float32 or lengths.dtype != torch.int32:
        raise ValueError(
            f"scores are {scores.dtype} and not float32, or lengths {lengths.dtype} and not int32"
        )


def topk(scores: torch.Tensor, lengths: torch.Tensor, k: int) -> torch.Tensor:
    """int32 [rows, k]: indices of the k greatest of scores [rows, n] float32 below lengths [rows] int32.

    First those greater than the k-th, then those equal to it, both by index; -1 where a row has fewer than
    k. -0 equals 0. Scores are no NaN.
    """
    check(scores, lengths, k)
    rows, width = scores.shape
    out = torch.full((rows, k), -1, dtype=torch.int32, device=scores.device)
    for row, length in enumerate(lengths.clamp(0, width).tolist()):
        own = scores[row, :length]
        if length <= k:
            out[row, :length] = torch.arange(length, device=scores.device)
            continue
        order = torch.sort(own, descending=True, stable=True).indices[:k]
        least = own[order[-1]]
        above, equal = order[own[order] > least], order[own[order] == least]
        out[row] = torch.cat((above.sort().values, equal.sort().values))
    return out
