"""Root-mean-square norm over the last dimension."""

from kernels.dispatch import by_device
from kernels.ops.rms_norm import reference

rms_norm = by_device(reference.rms_norm)

__all__ = ["rms_norm"]
