"""Multi-head latent attention of one token per sequence, with the up-projections absorbed into the query."""

from kernels.dispatch import by_device
from kernels.ops.mla_decode import reference

mla_decode = by_device(reference.mla_decode)

__all__ = ["mla_decode"]
