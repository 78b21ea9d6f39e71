"""Attention of one token per sequence over the pages of a batch of sequences."""

from kernels.ops.paged_decode_attention.reference import DecodePlan, paged_decode_attention, plan_decode

__all__ = ["DecodePlan", "paged_decode_attention", "plan_decode"]
