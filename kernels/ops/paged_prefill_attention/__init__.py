"""Causal attention of a run of one sequence's tokens over the sequence's pages."""

from kernels.ops.paged_prefill_attention.reference import (
    PrefillPlan,
    paged_prefill_attention,
    plan_prefill,
)

__all__ = ["PrefillPlan", "paged_prefill_attention", "plan_prefill"]
