"""From the last layer to logits: of the rows that are sampled alone."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.layers.linear import LmHead


def sampled_logits(
    x: torch.Tensor,
    sampled: torch.Tensor,
    norm: Callable[[torch.Tensor], torch.Tensor],
    head: LmHead,
    least: int,
) -> torch.Tensor | None:
    """float32 [sampled, vocab] on rank 0 for the rows int64 `sampled` of x; at least `least` are computed.

    None on other ranks, and on all when nothing is sampled.
    """
    wanted = sampled.shape[0]
    if wanted == 0:
        return None
    if wanted < least:
        sampled = torch.cat((sampled, sampled[-1:].expand(least - wanted)))
    logits = head(norm(x.index_select(0, sampled)))
    return None if logits is None else logits[:wanted]
