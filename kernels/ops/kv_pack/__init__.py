"""Some heads of some pages gathered into one run for staging, and put back."""

from kernels.dispatch import by_device
from kernels.ops.kv_pack import reference

kv_pack = by_device(reference.kv_pack)
kv_unpack = by_device(reference.kv_unpack)

__all__ = ["kv_pack", "kv_unpack"]
