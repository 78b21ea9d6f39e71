"""What an operator may say about the work of a GPU. No value of it changes an answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.core.settings import Settings
from engine.layers.shard import Shard
from engine.weights import ModelConfig
from kernels.ops.splits import MOST_TARGET, SplitPlan, SplitWorkspace
from kernels.streams.cuda import CudaStreams
from kernels.streams.interface import SIDE, Streams
from kernels.streams.serial import SerialStreams


@dataclass(frozen=True)
class Tuning:
    """`target_ctas`, `overlap`, `graphs` and `index_check` as their settings; in a step at most `max_running`
    rows are decoded."""

    target_ctas: int = MOST_TARGET
    overlap: bool = True
    max_running: int = 1
    index_check: int = 0
    graphs: bool = True

    @classmethod
    def of(cls, settings: Settings, max_running: int) -> Tuning:
        overlap, graphs = settings["overlap"] > 0, settings["graphs"] > 0
        return cls(int(settings["target_ctas"]), overlap, max_running, int(settings["index_check"]), graphs)

    def workspace(self, config: ModelConfig, shard: Shard) -> SplitWorkspace | None:
        """Where decode attention of this rank keeps its partial rows; None where the reference needs none."""
        if shard.device.type != "cuda":
            return None
        plan = SplitPlan.of(
            max_batch=self.max_running,
            heads=shard.heads[1] - shard.heads[0],
            kv_heads=shard.kv_heads[1] - shard.kv_heads[0],
            dim=config.head_dim,
            max_tokens=config.max_position,
        )
        return SplitWorkspace(plan, shard.device)

    def streams(self, device: torch.device) -> Streams:
        """What a step is launched on."""
        return CudaStreams((SIDE,), device, self.overlap) if device.type == "cuda" else SerialStreams()
