"""Checksums of KV pages that do not depend on how heads are split over ranks or tokens over pages."""

from kernels.ops.page_checksum.reference import page_checksum

__all__ = ["page_checksum"]
