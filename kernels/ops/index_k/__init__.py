"""Rows of index-K into their slots with a checksum of the bits stored, and which no longer are those."""

from kernels.dispatch import by_device
from kernels.ops.index_k import reference

write_index_k = by_device(reference.write_index_k)
verify_index_k = by_device(reference.verify_index_k)

__all__ = ["verify_index_k", "write_index_k"]
