"""Rotary position embedding and its inverse, of halves or of neighbours."""

from kernels.dispatch import by_device
from kernels.ops.rope import reference
from kernels.ops.rope.frequencies import (
    inverse_frequencies,
    llama3_frequencies,
    yarn_frequencies,
    yarn_scale,
)
from kernels.ops.rope.reference import rope_rows, rope_table

rope = by_device(reference.rope)
rope_inverse = by_device(reference.rope_inverse)

__all__ = [
    "inverse_frequencies",
    "llama3_frequencies",
    "rope",
    "rope_inverse",
    "rope_rows",
    "rope_table",
    "yarn_frequencies",
    "yarn_scale",
]
