"""Tokens from a step's logits."""

from __future__ import annotations

import torch

from engine.core.types import Sampling
from kernels.ops.sample import greedy, sample_row


def sample(logits: torch.Tensor, params: list[tuple[Sampling, int]]) -> list[int]:
    """One token per row of float32 logits [rows, vocab].

    The int is the position of the token being sampled: a seed gives the same token for the same position
    whatever else is in the batch. Temperature 0 is the exact argmax.
    """
    if logits.shape[0] != len(params):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(params)} sequences")
    tokens: list[int] = greedy(logits).tolist()
    for row, (p, position) in enumerate(params):
        if p.temperature > 0:
            tokens[row] = sample_row(logits[row], p.temperature, p.top_k, p.top_p, p.seed, position)
    return tokens
