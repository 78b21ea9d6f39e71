"""Checksums of KV pages that do not depend on how heads are split over ranks or tokens over pages."""

from kernels.dispatch import by_device
from kernels.ops.page_checksum import reference

page_checksum = by_device(reference.page_checksum)

__all__ = ["page_checksum"]
