"""Scores of the lightning indexer over the paged index-K cache."""

from kernels.dispatch import by_device
from kernels.ops.index_logits import reference

index_logits = by_device(reference.index_logits)

__all__ = ["index_logits"]
