"""Kernels with small blocks, so that a small case has several of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def small(kernel: ModuleType, **blocks: int) -> Iterator[None]:
    """The module's config table with these block sizes on every architecture."""
    table = kernel.CONFIGS
    kernel.CONFIGS = {
        arch: dataclasses.replace(c, blocks={**c.blocks, **blocks}) for arch, c in table.items()
    }
    try:
        yield
    finally:
        kernel.CONFIGS = table
