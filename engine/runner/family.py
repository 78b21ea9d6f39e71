"""What a runner needs of a model family: the model, its part of the pool, how a batch becomes a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from engine.core.errors import ModelError
from engine.core.types import Batch, Shape
from engine.layers.indexer import IndexCache
from engine.layers.page import PageLayout
from engine.layers.rows import Bounds, Rows, order
from engine.layers.shard import Shard
from engine.models import DECLARED, Llama
from engine.runner.planning import Planner
from engine.runner.pool import allocate_pool
from engine.runner.tuning import Tuning
from engine.weights import Checkpoint, ModelConfig
from engine.weights.rope import scaled_frequencies
from kernels.ops.rope import rope_table


class Model(Protocol):
    """A model of one family; `plan` is told a step's rows, the call gets what it made of them."""

    layout: PageLayout
    index: IndexCache
    rows: int

    def plan(self, rows: Rows) -> Any: ...

    def __call__(self, pool: torch.Tensor, step: Any) -> torch.Tensor | None: ...


class Plans(Protocol):
    def plan(self, batch: Batch) -> Any: ...


class Family(NamedTuple):
    model: Callable[[torch.Tensor, Any], torch.Tensor | None]
    pool: torch.Tensor
    planner: Plans
    shape: Shape
    index_cache: IndexCache | None = None


@dataclass(frozen=True)
class RowPlanner:
    """For models that plan their attention themselves, from the rows of a batch."""

    model: Model
    bounds: Bounds
    device: torch.device

    def plan(self, batch: Batch) -> Any:
        """ValueError for a slice that is empty, past the last position, without its pages or no tokens."""
        return self.model.plan(order(batch, self.bounds, self.model.rows, self.device))


def family_of(
    checkpoint: Checkpoint, config: ModelConfig, shard: Shard, page_size: int, pages: int, tuning: Tuning
) -> Family:
    """Load this rank's part of the model and allocate its part of the pool; ModelError when it cannot be."""
    make = DECLARED.get(config.architecture)
    if make is None:
        return _grouped(checkpoint, config, shard, page_size, pages, tuning)
    if shard.device.type == "cuda":
        # Attention over chosen entries needs a workspace there, which no runner has for it yet.
        text = f"{config.architecture} is served on a CPU only so far."
        raise ModelError("no_gpu_path", text, "Use --device cpu.")
    with torch.inference_mode():
        model = make(checkpoint, config, shard, page_size)
    return _declared(model, config, shard, page_size, pages)


def _grouped(
    checkpoint: Checkpoint, config: ModelConfig, shard: Shard, page_size: int, pages: int, tuning: Tuning
) -> Family:
    """Grouped-query attention: keys and values of this rank's heads, split over the ranks."""
    where, kind = shard.device, shard.dtype
    with torch.inference_mode():
        model = Llama(checkpoint, config, shard)
        scaling = config.rope_scaling
        frequencies = scaled_frequencies(config.head_dim, config.rope_theta, scaling)
        factor = scaling.attention_factor if scaling else 1.0
        cos, sin = ((t * factor).to(where) for t in rope_table(frequencies, config.max_position, kind))
    # Outside inference mode, so that transfers and tests may write into it anywhere.
    local = shard.kv_heads[1] - shard.kv_heads[0]
    # One more than anybody is told of, where steps are captured: it takes what rows of padding write.
    whole = pages + shard.streams.captures
    pool = allocate_pool((whole, local, config.layers, 2, page_size, config.head_dim), kind, where)
    workspace = tuning.workspace(config, shard)
    planner = Planner(pool[:pages], cos, sin, model.rows, config.vocab_size, workspace, tuning.target_ctas)
    shape = Shape(
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        page_size=page_size,
        itemsize=kind.itemsize,
    )
    return Family(model, pool, planner, shape)


def _declared(model: Model, config: ModelConfig, shard: Shard, page_size: int, pages: int) -> Family:
    """Pages that the model lays out: bytes, the same on every rank."""
    layout = model.layout
    if pages <= layout.state_pages + 1:
        raise ModelError(
            "pool_too_small",
            f"A sequence of this model keeps {layout.state_pages} pages besides those of its tokens, and the "
            f"pool has {pages} pages.",
            "Raise --pages, or --page-size.",
        )
    width = layout.page_bytes // (2 * page_size)
    pool = allocate_pool((pages, 1, 1, 2, page_size, width), torch.uint8, shard.device)
    bounds = Bounds(config.max_position, config.vocab_size, pages, page_size, layout.state_pages)
    shape = Shape(
        layers=1,
        kv_heads=1,
        head_dim=width,
        page_size=page_size,
        itemsize=1,
        replicated=True,
        opaque=True,
        state_pages=layout.state_pages,
    )
    return Family(model, pool, RowPlanner(model, bounds, shard.device), shape, model.index)
