"""Attention of one token per sequence over the pages of a batch of sequences."""

from kernels.dispatch import by_device
from kernels.ops.paged_decode_attention import reference
from kernels.ops.paged_decode_attention.reference import DecodePlan

plan_decode = by_device(reference.plan_decode)
replan_decode = by_device(reference.replan_decode)
paged_decode_attention = by_device(reference.paged_decode_attention)

__all__ = ["DecodePlan", "paged_decode_attention", "plan_decode", "replan_decode"]
