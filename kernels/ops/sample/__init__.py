"""The next token from logits."""

from kernels.ops.sample.reference import greedy, sample_row

__all__ = ["greedy", "sample_row"]
