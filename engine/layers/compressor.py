"""Windows of tokens into entries: one for the attention, in layers with an indexer one for it too."""

from __future__ import annotations

import torch

from engine.layers.compressed_cache import Closing, CompressedCache
from engine.layers.norm import RmsNorm
from engine.layers.rotary import Rotary, Turn
from engine.layers.shard import Shard
from engine.weights import Checkpoint
from kernels.ops.compress import compress


class Compressor:
    """Entries of `dim` channels; what is not in one yet waits in the ring `pending` of layer `number`.

    What goes in are [kv | gate], which the layer's linear computes with the rest of what it needs.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        dim: int,
        ratio: int,
        overlap: bool,
        pending: str,
        number: int,
        cache: CompressedCache,
        eps: float,
        shard: Shard,
    ) -> None:
        self._cache, self._pending, self._number = cache, pending, number
        channels = 2 * dim if overlap else dim
        bias = checkpoint.whole(f"{prefix}.ape", (ratio, channels))
        self._bias = bias.to(shard.device, torch.float32)
        self._norm = RmsNorm(checkpoint, f"{prefix}.norm", dim, eps, shard)

    def __call__(self, kv_gate: torch.Tensor, pool: torch.Tensor, closing: Closing) -> torch.Tensor:
        """[entries, dim] that the step completes, normed and turned, for [real, 2 * channels]."""
        layout = self._cache.layout
        joined = closing.past.join(layout, self._pending, self._number, pool, kv_gate)
        kv, gate = joined[closing.windows].chunk(2, -1)
        made = compress(kv.contiguous(), gate.contiguous(), self._bias, closing.previous)
        made = self._norm(made.index_select(0, closing.own).to(kv_gate.dtype))
        return turn_tail(made[:, None], self._cache.compress, closing.turn).squeeze(1)


def turn_tail(x: torch.Tensor, rotary: Rotary, turn: Turn) -> torch.Tensor:
    """x [rows, heads, dim] with its last channels turned."""
    return torch.cat((x[..., : -rotary.dim], rotary(x[..., -rotary.dim :], turn)), -1)
