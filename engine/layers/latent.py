"""Multi-head latent attention over the entries that an indexer chooses (DeepSeek-V3.2).

Of a token one latent and one rotary key are cached, for all heads. The up-projections are absorbed: a query
is taken into the latent's space, and what it gathers there is taken out to values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from engine.layers.indexer import Choice, IndexCache, IndexRows, index_sections
from engine.layers.linear import HeadLinear, Linear, RowLinear
from engine.layers.norm import RmsNorm
from engine.layers.page import PageLayout, Section
from engine.layers.rotary import Rotary, Turn
from engine.layers.rows import Rows, planned
from engine.layers.shard import Shard
from engine.weights import Checkpoint, MlaConfig, ModelConfig
from kernels.ops.linear import linear, pack
from kernels.ops.sparse_decode import sparse_decode
from kernels.streams.interface import MAIN, SIDE

LATENT = "latent"
LAYER_NORM_EPS = 1e-6  # of the indexer's keys; no config names it


@dataclass(frozen=True)
class LatentStep:
    """`rows` with what attention needs: rotations of keys and of the indexer, `slots` and `index` of the
    tokens' own entries in layer 0, `choice` of each row and its pages as int64."""

    rows: Rows
    turn: Turn
    index_turn: Turn
    slots: torch.Tensor
    index: IndexRows
    choice: Choice
    pages: torch.Tensor

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        return list(planned(self))


class LatentCache:
    """What is cached of a sequence, where it lies, and how a step finds it."""

    def __init__(self, config: ModelConfig, mla: MlaConfig, page_size: int, shard: Shard) -> None:
        self.mla, self.page_size = mla, page_size
        latent = Section(LATENT, config.layers, page_size, mla.latent, shard.dtype)
        self.layout = PageLayout(
            page_size, [latent, *index_sections(config.layers, page_size, mla.index.dim)], []
        )
        self.index = IndexCache(self.layout, 1, range(config.layers))
        theta, scaling = config.rope_theta, config.rope_scaling
        self.rotary = Rotary(mla.rope, theta, scaling, shard, interleaved=True)
        self.index_rotary = Rotary(mla.rope, theta, scaling, shard, interleaved=False)

    def plan(self, rows: Rows) -> LatentStep:
        own = rows.positions[: rows.real]
        pages = rows.pages(self.page_size)
        at = pages.gather(1, own[:, None] // self.page_size).squeeze(1)
        lengths = (own + 1).to(torch.int32)
        return LatentStep(
            rows,
            self.rotary.at(rows.positions),
            self.index_rotary.at(rows.positions),
            self.layout.slots(LATENT, at, own),
            self.index.rows(at, own),
            Choice(pages.to(torch.int32), lengths, int(lengths.max())),
            pages,
        )

    def table(self, pool: torch.Tensor, layer: int) -> tuple[torch.Tensor, int]:
        """All latents of the pool, and what to add to a row of layer 0 for this layer's."""
        return self.layout.table(pool, LATENT), self.layout.entry(LATENT, layer) - self.layout.entry(
            LATENT, 0
        )

    def slots(self, chosen: torch.Tensor, step: LatentStep) -> torch.Tensor:
        """Rows of layer 0 for the numbers of entries that each row has chosen, below 0 for none."""
        number = chosen.clamp(min=0)
        page = step.pages.gather(1, number // self.page_size)
        return torch.where(chosen < 0, chosen, self.layout.slots(LATENT, page, number))


class LatentAttention:
    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        layer: int,
        config: ModelConfig,
        cache: LatentCache,
        shard: Shard,
    ) -> None:
        self._layer, self._cache, self._mla = layer, cache, cache.mla
        self._streams = shard.streams
        mla = cache.mla
        hidden, eps, heads = config.hidden_size, config.rms_norm_eps, shard.heads
        self._heads = heads[1] - heads[0]
        scaling = config.rope_scaling
        self._scale = (mla.nope + mla.rope) ** -0.5 * (scaling.logit_factor if scaling else 1.0)
        index = f"{prefix}.indexer"
        self._down = Linear(
            checkpoint,
            [
                (f"{prefix}.q_a_proj", (mla.q_rank, hidden), None),
                (f"{prefix}.kv_a_proj_with_mqa", (mla.latent, hidden), None),
                (f"{index}.wk", (mla.index.dim, hidden), None),
            ],
            shard,
        )
        self._q_norm = RmsNorm(checkpoint, f"{prefix}.q_a_layernorm", mla.q_rank, eps, shard)
        self._kv_norm = RmsNorm(checkpoint, f"{prefix}.kv_a_layernorm", mla.kv_rank, eps, shard)
        whole, rows = _of_heads(config.heads, heads, mla.nope + mla.rope)
        index_q = (mla.index.heads * mla.index.dim, mla.q_rank)
        self._up = Linear(
            checkpoint,
            [(f"{prefix}.q_b_proj", (whole, mla.q_rank), rows), (f"{index}.wq_b", index_q, None)],
            shard,
        )
        self._into, self._outof = _absorbed(checkpoint, f"{prefix}.kv_b_proj", config.heads, mla, shard)
        whole, rows = _of_heads(config.heads, heads, mla.value)
        self._out = RowLinear(checkpoint, f"{prefix}.o_proj", (hidden, whole), rows, False, shard)
        shape = (mla.index.dim,)
        weight, bias = (checkpoint.whole(f"{index}.k_norm.{name}", shape) for name in ("weight", "bias"))
        self._k_norm = (weight.to(shard.device, shard.dtype), bias.to(shard.device, shard.dtype))
        gate = checkpoint.whole(f"{index}.weights_proj.weight", (mla.index.heads, hidden))
        self._gate = pack(gate.to(shard.device, torch.float32))

    @property
    def rows(self) -> int:
        linears = (self._down.weight, self._up.weight, self._out.weight, self._gate, self._into, self._outof)
        return max(weight.rows for weight in linears)

    def __call__(self, x: torch.Tensor, pool: torch.Tensor, step: LatentStep) -> torch.Tensor:
        """[rows, hidden] for x of that shape; the rows' own entries are written into the pool first."""
        mla, cache, real, streams = self._mla, self._cache, step.rows.real, self._streams
        q_down, latent, index_k = self._down(x).split(self._down.sizes, 1)
        q, index_q = self._up(self._q_norm(q_down)).split(self._up.sizes, 1)
        table, offset = cache.table(pool, self._layer)
        streams.fork(MAIN, SIDE)
        slots = streams.launch(
            SIDE,
            "indexer",
            lambda: self._choose(x, index_q, index_k, pool, step),
            reads=[x, index_q, index_k, *step.tensors],
            writes=[pool],
        )
        self._keep(latent, table, offset, step)
        q = q.reshape(x.shape[0], self._heads, -1)
        query = torch.cat((self._into(q[..., : mla.nope]), cache.rotary(q[..., mla.nope :], step.turn)), -1)[
            :real
        ]
        streams.join(MAIN, SIDE)
        found = x.new_zeros(x.shape[0], self._heads, mla.kv_rank)
        found[:real] = sparse_decode(
            query.contiguous(), (table, table), (slots, slots[:, :0]), mla.kv_rank, self._scale
        )
        return self._out(self._outof(found).reshape(x.shape[0], -1))

    def _keep(self, latent: torch.Tensor, table: torch.Tensor, offset: int, step: LatentStep) -> None:
        """Store the rows' latents and rotary keys."""
        rank, rotary = self._mla.kv_rank, self._cache.rotary
        rope_k = rotary(latent[:, None, rank:], step.turn).squeeze(1)
        kept = torch.cat((self._kv_norm(latent[:, :rank]), rope_k), 1)
        table.index_copy_(0, step.slots + offset, kept[: step.rows.real])

    def _choose(
        self, x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, pool: torch.Tensor, step: LatentStep
    ) -> torch.Tensor:
        """Store the rows' index-K, then int64 [real, topk]: where the entries lie that each row attends to,
        below 0 for none."""
        index, cache, real = self._mla.index, self._cache, step.rows.real
        k = F.layer_norm(k, (index.dim,), *self._k_norm, eps=LAYER_NORM_EPS)
        k = _turned(k[:, None], cache.index_rotary, step.index_turn).squeeze(1)
        cache.index.write(pool, self._layer, step.index, k[:real])
        q = _turned(q.reshape(x.shape[0], index.heads, index.dim), cache.index_rotary, step.index_turn)
        weights = linear(x.float(), self._gate) * (index.heads * index.dim) ** -0.5
        chosen = cache.index.choose(pool, self._layer, q[:real], weights[:real], step.choice, index.topk)
        return torch.where(chosen < 0, chosen, cache.slots(chosen, step) + cache.table(pool, self._layer)[1])


def _turned(x: torch.Tensor, rotary: Rotary, turn: Turn) -> torch.Tensor:
    """x [rows, heads, dim] with its first channels turned."""
    return torch.cat((rotary(x[..., : rotary.dim], turn), x[..., rotary.dim :]), -1)


def _of_heads(heads: int, own: tuple[int, int], size: int) -> tuple[int, tuple[int, int]]:
    """All channels of `heads` heads of `size`, and the range of those that are this rank's."""
    return heads * size, (own[0] * size, own[1] * size)


def _absorbed(
    checkpoint: Checkpoint, name: str, heads: int, mla: MlaConfig, shard: Shard
) -> tuple[HeadLinear, HeadLinear]:
    """This rank's up-projections: of keys, from a query's side, and of values."""
    each = mla.nope + mla.value
    weight = checkpoint.rows(
        f"{name}.weight", (heads * each, mla.kv_rank), shard.heads[0] * each, shard.heads[1] * each
    )
    weight = weight.view(-1, each, mla.kv_rank)
    return HeadLinear(weight[:, : mla.nope].transpose(1, 2), shard), HeadLinear(weight[:, mla.nope :], shard)
