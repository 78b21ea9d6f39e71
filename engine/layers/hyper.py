"""Residual streams: a layer reads a mixture of them, and its output and a mixture of them go on."""

from __future__ import annotations

import torch

from engine.layers.shard import Shard
from engine.weights import Checkpoint, CompressedConfig, ModelConfig
from kernels.ops.linear import linear, pack


class Mixer:
    """float32 weights from normed streams [rows, streams, hidden]: `sizes` of them, each with its scale."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        names: tuple[str, str, str],
        sizes: list[int],
        config: ModelConfig,
        shard: Shard,
    ) -> None:
        own = _own(config)
        fn, base, scale = names
        width = own.streams * config.hidden_size
        self.weight = pack(checkpoint.whole(fn, (sum(sizes), width)).to(shard.device, torch.float32))
        self._base = checkpoint.whole(base, (sum(sizes),)).to(shard.device, torch.float32)
        each = checkpoint.whole(scale, (len(sizes),)).to(shard.device, torch.float32)
        self._scale = each.repeat_interleave(torch.tensor(sizes, device=shard.device))
        self._norm_eps = config.rms_norm_eps

    def __call__(self, streams: torch.Tensor) -> torch.Tensor:
        flat = streams.flatten(1).float()
        flat = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + self._norm_eps)
        return linear(flat, self.weight) * self._scale + self._base


class HyperConnection:
    """Around one block of a layer; `names`: its matrix, base and scales."""

    def __init__(
        self, checkpoint: Checkpoint, names: tuple[str, str, str], config: ModelConfig, shard: Shard
    ) -> None:
        own = _own(config)
        self._n, self._eps, self._iterations = own.streams, own.eps, own.sinkhorn
        self._mixer = Mixer(checkpoint, names, [self._n, self._n, self._n**2], config, shard)
        self.rows = self._mixer.weight.rows

    def __call__(self, streams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What the block reads [rows, hidden], and how its output [rows, streams] and the streams
        [rows, streams, streams] go on: see `join`."""
        n = self._n
        read, write, mix = self._mixer(streams).split([n, n, n * n], -1)
        x = (_sigmoid(read) + self._eps)[..., None] * streams
        mix = torch.softmax(mix.reshape(-1, n, n).double(), -1).float() + self._eps
        return x.sum(1).to(streams.dtype), 2 * _sigmoid(write), self._balanced(mix)

    def _balanced(self, mix: torch.Tensor) -> torch.Tensor:
        """Rows and columns that add up to 1, by Sinkhorn and Knopp's iteration."""
        mix = mix / (mix.sum(-2, keepdim=True) + self._eps)
        for _ in range(self._iterations - 1):
            mix = mix / (mix.sum(-1, keepdim=True) + self._eps)
            mix = mix / (mix.sum(-2, keepdim=True) + self._eps)
        return mix


def join(streams: torch.Tensor, out: torch.Tensor, write: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    """The streams after a block whose output is `out` [rows, hidden]. Stream j goes into k by mix[j, k]."""
    kind = streams.dtype
    return write.to(kind)[..., None] * out[:, None] + mix.to(kind).transpose(1, 2) @ streams


class HyperHead:
    """The streams into one row before the last norm."""

    def __init__(
        self, checkpoint: Checkpoint, names: tuple[str, str, str], config: ModelConfig, shard: Shard
    ) -> None:
        own = _own(config)
        self._eps = own.eps
        self._mixer = Mixer(checkpoint, names, [own.streams], config, shard)
        self.rows = self._mixer.weight.rows

    def __call__(self, streams: torch.Tensor) -> torch.Tensor:
        read = _sigmoid(self._mixer(streams)) + self._eps
        return (read[..., None] * streams).sum(1).to(streams.dtype)


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    """In float64 for the reason that the experts' router has: a row's bits must not depend on the others."""
    return torch.sigmoid(x.double()).float()


def _own(config: ModelConfig) -> CompressedConfig:
    if config.compressed is None:
        raise ValueError(f"{config.architecture} has no residual streams")
    return config.compressed
