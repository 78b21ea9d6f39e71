"""Tokens from a step's logits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import torch

from engine.core.types import Logprob, Sampled, Sampling
from kernels.ops.sample import greedy, sample_row

# JSON has no infinity: the OpenAI API says this of a token that cannot come.
_LEAST = -9999.0


def sample(
    logits: torch.Tensor,
    params: list[tuple[Sampling, int]],
    allowed: Mapping[int, bytes] = MappingProxyType({}),
) -> list[Sampled]:
    """One token per row of float32 logits [rows, vocab].

    The int is the position of the token being sampled: a seed gives the same token for the same position
    whatever else is in the batch. Temperature 0 is the exact argmax. `allowed` has the tokens that a row is
    held to, a bit each, the lowest first; log probabilities are the model's own all the same.
    """
    if logits.shape[0] != len(params):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(params)} sequences")
    held = _held(logits, allowed) if allowed else logits
    tokens: list[int] = greedy(held).tolist()
    for row, (p, position) in enumerate(params):
        if p.temperature > 0:
            tokens[row] = sample_row(held[row], p.temperature, p.top_k, p.top_p, p.seed, position)
    wanted = [p.logprobs for p, _ in params]
    return [Sampled(t, _logprob(row, t, n)) for row, t, n in zip(logits, tokens, wanted, strict=True)]


def _held(logits: torch.Tensor, allowed: Mapping[int, bytes]) -> torch.Tensor:
    """A copy in which a token that may not come is minus infinity; what a mask is too short for may not."""
    held = logits.clone()
    for row, mask in allowed.items():
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little", count=logits.shape[1])
        held[row].masked_fill_(torch.from_numpy(bits == 0).to(logits.device), -math.inf)
    return held


def _logprob(logits: torch.Tensor, token: int, count: int | None) -> Logprob | None:
    if count is None:
        return None
    found = torch.log_softmax(logits.float(), -1).clamp_(min=_LEAST)
    values, tokens = found.topk(min(count, found.shape[0]))
    return Logprob(float(found[token]), list(zip(tokens.tolist(), values.tolist(), strict=True)))
