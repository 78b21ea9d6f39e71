"""What every layer needs to know of one forward step, planned once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.ops.paged_decode_attention import DecodePlan
from kernels.ops.paged_prefill_attention import PrefillPlan


@dataclass(frozen=True)
class Step:
    """Token rows in this order: one per decoding sequence, then each prefilling run, then padding.

    `tokens` int64 [rows]; `cos`, `sin` [rows, 1, head_dim]; `real` rows are not padding; `kv_rows` places
    them in the pool; `prefills` are (first row, last row, plan); `sampled` int64 rows whose logits are
    wanted, in the order of the batch's slices.
    """

    tokens: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    real: int
    kv_rows: torch.Tensor
    decode: DecodePlan | None
    prefills: tuple[tuple[int, int, PrefillPlan], ...]
    sampled: torch.Tensor
