"""Greedy and seeded sampling; a seed's token depends on the seed and the position, never on the batch."""

from __future__ import annotations

import torch


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """int64 [rows]: the first greatest logit of each row of [rows, vocab]."""
    check(logits)
    return logits.argmax(-1)


def check(logits: torch.Tensor) -> None:
    if logits.dim() != 2:
        raise ValueError(f"logits {list(logits.shape)} are not [rows, vocab]")


# Below, scores would overflow to infinities of which no softmax is a number; equal logits alone share here.
_COLDEST = 1e-30


def sample_row(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, seed: int | None, position: int
) -> int:
    """One token from float32 logits [vocab].

    top_k (0: off) first, then top_p (1: off): the fewest most likely tokens whose probability reaches it.
    With a seed the draw is a function of (seed, position, logits); without, of torch's own generator.
    """
    if logits.dim() != 1 or not temperature > 0 or top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(
            f"logits {list(logits.shape)}, temperature {temperature}, top_k {top_k}, top_p {top_p}"
        )
    scores = logits.float().cpu() / max(temperature, _COLDEST)
    kept = min(top_k, scores.shape[0]) if top_k else scores.shape[0]
    scores, tokens = torch.topk(scores, kept) if top_k else scores.sort(descending=True, stable=True)
    weights = torch.softmax(scores, -1)
    if top_p < 1:
        before = weights.cumsum(-1) - weights
        weights = weights.masked_fill(before >= top_p, 0.0)
    sums = weights.cumsum(-1, dtype=torch.float64)
    draw = _uniform(seed, position) * float(sums[-1])
    index = int(torch.searchsorted(sums, draw, right=True))
    last = int(weights.count_nonzero()) - 1  # rounding may put the draw on the very end
    return int(tokens[min(index, last)])


def _uniform(seed: int | None, position: int) -> float:
    """In [0, 1): splitmix64 of (seed, position), https://prng.di.unimi.it/splitmix64.c."""
    if seed is None:
        return float(torch.rand((), dtype=torch.float64))
    z = _mix(_mix(seed & _MASK) + position * 0x9E3779B97F4A7C15)
    return (z >> 11) / float(1 << 53)


_MASK = (1 << 64) - 1


def _mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
