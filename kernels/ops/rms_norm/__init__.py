"""Root-mean-square norm over the last dimension."""

from kernels.ops.rms_norm.reference import rms_norm

__all__ = ["rms_norm"]
