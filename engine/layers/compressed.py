"""Attention over a window and compressed entries, in one softmax with a sink (DeepSeek-V4).

Keys are their own values, so values are turned by position; what is gathered is turned back.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engine.layers.compressed_cache import PENDING, SPARSE, WINDOW, CompressedCache, CompressedStep
from engine.layers.compressor import Compressor, turn_tail
from engine.layers.linear import HeadLinear, Linear, RowLinear
from engine.layers.norm import RmsNorm
from engine.layers.shard import Shard
from engine.weights import Checkpoint, ModelConfig
from kernels.ops.linear import linear, pack
from kernels.ops.sparse_decode import sparse_decode
from kernels.streams.interface import MAIN, SIDE

Weight = tuple[str, tuple[int, int], tuple[int, int] | None]


class CompressedAttention:
    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        layer: int,
        config: ModelConfig,
        cache: CompressedCache,
        shard: Shard,
    ) -> None:
        own, dim, hidden, eps = cache.config, config.head_dim, config.hidden_size, config.rms_norm_eps
        self._layer, self._number, self._cache = layer, cache.number[layer], cache
        self._span, self._eps, self._dim = own.spans[layer], eps, dim
        self._heads, self._streams = shard.heads[1] - shard.heads[0], shard.streams
        down: list[Weight] = [
            (f"{prefix}.wq_a", (own.q_rank, hidden), None),
            (f"{prefix}.wkv", (dim, hidden), None),
        ]
        part = (shard.heads[0] * dim, shard.heads[1] * dim)
        up: list[Weight] = [(f"{prefix}.wq_b", (config.heads * dim, own.q_rank), part)]
        self._entries: Compressor | None = None
        self._indexer: Indexer | None = None
        if self._span != "window":
            name, overlap = f"{prefix}.compressor", self._span == SPARSE
            down += _kv_gate(name, dim * (1 + overlap), hidden)
            ratio, pending = cache.ratios[self._span], PENDING[self._span]
            args = (ratio, overlap, pending, self._number, cache, eps, shard)
            self._entries = Compressor(checkpoint, name, dim, *args)
        if self._span == SPARSE:
            self._indexer = Indexer(checkpoint, f"{prefix}.indexer", self._number, cache, hidden, eps, shard)
            down += _kv_gate(f"{prefix}.indexer.compressor", 2 * own.index.dim, hidden)
            up.append((f"{prefix}.indexer.wq_b", (own.index.heads * own.index.dim, own.q_rank), None))
        self._down, self._up = Linear(checkpoint, down, shard), Linear(checkpoint, up, shard)
        self._q_norm = RmsNorm(checkpoint, f"{prefix}.q_norm", own.q_rank, eps, shard)
        kv_norm = checkpoint.first(f"{prefix}.kv_norm.weight", f"{prefix}.norm.weight")
        self._kv_norm = RmsNorm(checkpoint, kv_norm.removesuffix(".weight"), dim, eps, shard)
        sinks = checkpoint.rows(f"{prefix}.attn_sink", (config.heads,), *shard.heads)
        self._sinks = sinks.to(shard.device, torch.float32)
        self._out = GroupedOut(checkpoint, prefix, config, cache, shard)

    @property
    def rows(self) -> int:
        gate = self._indexer.gate.rows if self._indexer else 1
        return max(self._down.weight.rows, self._up.weight.rows, self._out.rows, gate)

    def __call__(self, x: torch.Tensor, pool: torch.Tensor, step: CompressedStep) -> torch.Tensor:
        """[rows, hidden] for x of that shape; what is cached of the rows is written into the pool first."""
        cache, real, entries = self._cache, step.rows.real, self._entries
        rotary, turn = (cache.compress, step.compress) if entries else (cache.main, step.main)
        q_down, kv, *rest = self._down(x).split(self._down.sizes, 1)
        q_down = self._q_norm(q_down)
        q, *index_q = self._up(q_down).split(self._up.sizes, 1)
        slots = self._start(entries, x, rest, index_q, pool, step) if entries else step.seen[:, :0]
        q = F.rms_norm(q.reshape(x.shape[0], self._heads, self._dim), (self._dim,), None, self._eps)
        q = turn_tail(q, rotary, turn)
        kv = turn_tail(self._kv_norm(kv)[:, None], rotary, turn).squeeze(1)
        near = far = step.window.join(cache.layout, WINDOW, self._layer, pool, kv[:real])
        if entries:
            self._streams.join(MAIN, SIDE)
            far = cache.layout.table(pool, self._span)
        found = torch.zeros_like(q)
        found[:real] = sparse_decode(
            q[:real].contiguous(), (near, far), (step.seen, slots), self._dim, self._dim**-0.5, self._sinks
        )
        back = rotary.back(found[..., -rotary.dim :], turn)
        return self._out(torch.cat((found[..., : -rotary.dim], back), -1))

    def _start(
        self,
        entries: Compressor,
        x: torch.Tensor,
        rest: list[torch.Tensor],
        index_q: list[torch.Tensor],
        pool: torch.Tensor,
        step: CompressedStep,
    ) -> torch.Tensor:
        """`_chosen`, beside the main work; to be joined."""
        self._streams.fork(MAIN, SIDE)
        return self._streams.launch(
            SIDE,
            "entries",
            lambda: self._chosen(entries, x, rest, index_q, pool, step),
            reads=[x, *rest, *index_q, *step.tensors],
            writes=[pool],
        )

    def _chosen(
        self,
        entries: Compressor,
        x: torch.Tensor,
        rest: list[torch.Tensor],
        index_q: list[torch.Tensor],
        pool: torch.Tensor,
        step: CompressedStep,
    ) -> torch.Tensor:
        """Store the entries that the step completes; int64 [real, n]: rows of those that each row sees, below
        0 for none.

        `rest`: what the compressors take, [kv, gate] of the attention's and then of the indexer's.
        """
        cache, real, closing = self._cache, step.rows.real, step.closing[self._span]
        made = entries(torch.cat(rest[:2], 1)[:real], pool, closing)
        at = cache.layout.slots(self._span, closing.pages, closing.numbers)
        cache.layout.table(pool, self._span).index_copy_(0, at + cache.offset(self._span, self._number), made)
        chosen = step.heavy_entries
        if self._indexer is not None:
            kv_gate = torch.cat(rest[2:], 1)[:real]
            chosen = self._indexer(x, kv_gate, index_q[0], pool, step)
        return cache.slots(self._span, self._number, chosen, step)


class Indexer:
    """Chooses the entries of one layer for each row; keeps index-K of them."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        number: int,
        cache: CompressedCache,
        hidden: int,
        eps: float,
        shard: Shard,
    ) -> None:
        self._number, self._cache = number, cache
        own = cache.config
        name, pending = f"{prefix}.compressor", PENDING["index"]
        args = (own.sparse, True, pending, number, cache, eps, shard)
        self._keys = Compressor(checkpoint, name, own.index.dim, *args)
        gate = checkpoint.whole(f"{prefix}.weights_proj.weight", (own.index.heads, hidden))
        self.gate = pack(gate.to(shard.device, torch.float32))

    def __call__(
        self,
        x: torch.Tensor,
        kv_gate: torch.Tensor,
        q: torch.Tensor,
        pool: torch.Tensor,
        step: CompressedStep,
    ) -> torch.Tensor:
        """int64 [real, topk], below 0 for none; q [rows, heads * dim]."""
        cache, index, real = self._cache, self._cache.config.index, step.rows.real
        closing = step.closing[SPARSE]
        keys = self._keys(kv_gate, pool, closing)
        cache.index.write(pool, self._number, cache.index.rows(closing.pages, closing.numbers), keys)
        if not step.choice.width:
            return step.seen[:, :0]
        q = turn_tail(q.reshape(x.shape[0], index.heads, index.dim), cache.compress, step.compress)
        weights = linear(x.float(), self.gate) * (index.heads * index.dim) ** -0.5
        return cache.index.choose(pool, self._number, q[:real], weights[:real], step.choice, index.topk)


class GroupedOut:
    """Heads in groups, each through a matrix of low rank, then all together; a rank has whole groups."""

    def __init__(
        self, checkpoint: Checkpoint, prefix: str, config: ModelConfig, cache: CompressedCache, shard: Shard
    ) -> None:
        own = cache.config
        first, last = shard.part(own.groups)
        inner, rank = config.heads // own.groups * config.head_dim, own.out_rank
        weight = checkpoint.rows(
            f"{prefix}.wo_a.weight", (own.groups * rank, inner), first * rank, last * rank
        )
        self._count = last - first
        self._groups = HeadLinear(weight.view(self._count, rank, inner), shard)
        shape, part = (config.hidden_size, own.groups * rank), (first * rank, last * rank)
        self._last = RowLinear(checkpoint, f"{prefix}.wo_b", shape, part, False, shard)

    @property
    def rows(self) -> int:
        return max(self._last.weight.rows, self._groups.rows)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] for x [rows, heads of this rank, head_dim]."""
        groups = self._groups(x.reshape(x.shape[0], self._count, -1))
        return self._last(groups.reshape(x.shape[0], -1))


def _kv_gate(prefix: str, channels: int, hidden: int) -> list[Weight]:
    return [(f"{prefix}.{name}", (channels, hidden), None) for name in ("wkv", "wgate")]
