"""A window of tokens into one compressed entry, with or without the window before it."""

from kernels.dispatch import by_device
from kernels.ops.compress import reference

compress = by_device(reference.compress)

__all__ = ["compress"]
