"""Tensor-parallel layers; each reads its own shard of the weights."""
