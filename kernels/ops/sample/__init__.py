"""The next token from logits."""

from kernels.dispatch import by_device
from kernels.ops.sample import reference
from kernels.ops.sample.reference import sample_row

greedy = by_device(reference.greedy)

__all__ = ["greedy", "sample_row"]
