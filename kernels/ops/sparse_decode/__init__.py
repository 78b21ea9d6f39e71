"""Attention of one token per sequence over chosen entries and a window, in one softmax."""

from kernels.dispatch import by_device
from kernels.ops.sparse_decode import reference

sparse_decode = by_device(reference.sparse_decode)

__all__ = ["sparse_decode"]
