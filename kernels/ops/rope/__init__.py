"""Rotary position embedding, rotate-half form."""

from kernels.ops.rope.frequencies import inverse_frequencies, llama3_frequencies
from kernels.ops.rope.reference import rope, rope_table

__all__ = ["inverse_frequencies", "llama3_frequencies", "rope", "rope_table"]
