"""Keys and values of a step's tokens into their pages, one layer at a time."""

from kernels.ops.kv_write.reference import kv_rows, kv_write

__all__ = ["kv_rows", "kv_write"]
