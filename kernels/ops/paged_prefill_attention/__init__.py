"""Causal attention of a run of one sequence's tokens over the sequence's pages."""

from kernels.dispatch import by_device
from kernels.ops.paged_prefill_attention import reference
from kernels.ops.paged_prefill_attention.reference import PrefillPlan

plan_prefill = by_device(reference.plan_prefill)
paged_prefill_attention = by_device(reference.paged_prefill_attention)

__all__ = ["PrefillPlan", "paged_prefill_attention", "plan_prefill"]
