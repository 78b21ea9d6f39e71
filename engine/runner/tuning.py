"""What an operator may say about the work of a GPU. No value of it changes an answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.core.settings import Settings
from engine.layers.shard import Shard
from engine.weights import ModelConfig
from kernels.ops.splits import MOST_TARGET, SplitPlan, SplitWorkspace
from kernels.streams.cuda import CudaStreams
from kernels.streams.interface import Streams
from kernels.streams.serial import SerialStreams

SIDE = "side"


@dataclass(frozen=True)
class Tuning:
    """`target_ctas` and `overlap` as their settings; `max_running` rows are decoded in a step at most."""

    target_ctas: int = MOST_TARGET
    overlap: bool = True
    max_running: int = 1

    @classmethod
    def of(cls, settings: Settings, max_running: int) -> Tuning:
        return cls(int(settings["target_ctas"]), settings["overlap"] > 0, max_running)

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
        return CudaStreams((SIDE,), device, self.overlap) if device.type == "cuda" else SerialStreams(device)
