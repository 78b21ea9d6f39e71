"""Mixture of experts: a router picks some for each token; every rank holds a part of each of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engine.layers.mlp import NAMES, Mlp
from engine.layers.shard import Shard
from engine.weights import Checkpoint, ModelConfig, MoeConfig
from kernels.ops.linear import linear, pack
from kernels.streams.interface import MAIN, SIDE

_SCORES = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda logits: F.softplus(logits).sqrt(),
}


@dataclass(frozen=True)
class MoeNames:
    """What a family calls the correction of the router's scores, and the weights of an expert."""

    bias: str = "gate.e_score_correction_bias"
    expert: tuple[str, str, str] = NAMES


class Router:
    """Which experts a token takes, and with which weights; in float32, the same on every rank."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        names: MoeNames,
        layer: int,
        config: ModelConfig,
        shard: Shard,
    ) -> None:
        moe = _of(config)
        self._moe = moe
        weight = checkpoint.whole(f"{prefix}.gate.weight", (moe.experts, config.hidden_size))
        self.weight = pack(weight.to(shard.device, torch.float32))
        self._bias: torch.Tensor | None = None
        self._table: torch.Tensor | None = None
        if moe.layers[layer] == "hashed":
            name, shape = f"{prefix}.gate.tid2eid", (config.vocab_size, moe.per_token)
            self._table = checkpoint.integers(name, shape, moe.experts).to(shard.device)
        elif moe.biased:
            bias = checkpoint.whole(f"{prefix}.{names.bias}", (moe.experts,))
            self._bias = bias.to(shard.device, torch.float32)

    def __call__(self, x: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights float32 and experts int64, both [rows, per_token], for x [rows, hidden] of these tokens."""
        moe = self._moe
        # In float64, because torch computes the last numbers of a tensor by another way, so that in float32 a
        # token's bits would depend on how many others there are.
        scores = _SCORES[moe.scoring](linear(x.float(), self.weight).double()).float()
        if self._table is None:
            chosen = _greatest(self._offered(scores), moe.per_token)
        else:
            chosen = self._table.index_select(0, tokens)
        weights = scores.gather(1, chosen)
        if moe.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * moe.scale, chosen

    def _offered(self, scores: torch.Tensor) -> torch.Tensor:
        """Scores by which experts are chosen: corrected, minus infinity in groups that are not kept."""
        moe = self._moe
        if self._bias is not None:
            scores = scores + self._bias
        if moe.groups_kept == moe.groups:
            return scores
        groups = scores.view(-1, moe.groups, moe.experts // moe.groups)
        kept = _greatest(groups.topk(2, -1).values.sum(-1), moe.groups_kept)
        left_out = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter_(1, kept, False)
        return groups.masked_fill(left_out[..., None], float("-inf")).view_as(scores)


class Moe:
    """`rows` as of Mlp: an expert computes at least that many, so that a token's company is nothing to it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        layer: int,
        config: ModelConfig,
        shard: Shard,
        names: MoeNames | None = None,
    ) -> None:
        names, moe = names or MoeNames(), _of(config)
        self._comm, self._streams = shard.comm, shard.streams
        self._router = Router(checkpoint, prefix, names, layer, config, shard)
        hidden, limit = config.hidden_size, moe.limit
        sizes = (hidden, moe.intermediate)
        self._experts = [
            Mlp(checkpoint, f"{prefix}.experts.{i}", sizes, False, shard, names.expert, limit)
            for i in range(moe.experts)
        ]
        self._shared: Mlp | None = None
        if moe.shared:
            sizes = (hidden, moe.shared)
            shared = f"{prefix}.shared_experts"
            self._shared = Mlp(checkpoint, shared, sizes, False, shard, names.expert, limit)

    @property
    def rows(self) -> int:
        every = [*self._experts, *([self._shared] if self._shared else [])]
        return max(self._router.weight.rows, *(mlp.rows for mlp in every))

    def __call__(self, x: torch.Tensor, tokens: torch.Tensor, real: int) -> torch.Tensor:
        """[rows, hidden] for x of that shape; rows from `real` on are padding, which no expert computes."""
        out, weights, chosen = self._begin(x, tokens)
        weights, chosen = weights[:real].to(x.dtype), chosen[:real]
        # In the order of experts, so that a token's sum is the same whoever else is in the step.
        for number in chosen.unique().tolist():
            row, place = (chosen == number).nonzero(as_tuple=True)
            expert = self._experts[number]
            found = expert.partial(_at_least(x.index_select(0, row), expert.rows))[: row.shape[0]]
            out.index_add_(0, row, found * weights[row, place, None])
        return self._comm.all_reduce(out)

    def _begin(self, x: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What every token gets, computed while the router chooses, and its choice."""
        streams, shared = self._streams, self._shared
        if shared is None:
            return torch.zeros_like(x), *self._router(x, tokens)
        streams.fork(MAIN, SIDE)
        out = streams.launch(SIDE, "shared expert", lambda: shared.partial(x), reads=[x])
        weights, chosen = self._router(x, tokens)
        streams.join(MAIN, SIDE)
        return out, weights, chosen


def _of(config: ModelConfig) -> MoeConfig:
    if config.moe is None:
        raise ValueError(f"{config.architecture} has no experts")
    return config.moe


def _greatest(scores: torch.Tensor, k: int) -> torch.Tensor:
    """int64 [rows, k]: of equal scores the lowest index wins, on every rank and in every batch."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :k]


def _at_least(x: torch.Tensor, rows: int) -> torch.Tensor:
    """x with its last row repeated up to `rows` rows."""
    return x if x.shape[0] >= rows else torch.cat((x, x[-1:].expand(rows - x.shape[0], -1)))
