"""Tiny random checkpoints of each architecture, made with transformers, and ranks as threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from engine.core.types import Batch, Slice
from engine.runner import ModelRunner, Tuning

T = TypeVar("T")
WAIT = 60.0  # seconds until a rank that lost its partners gives up

SIZES: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 70,  # uneven over 3 ranks
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 256,
    "eos_token_id": 7,
    "bos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
EXPERTS = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "mlp_only_layers": [1],
    "norm_topk_prob": True,
}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama3": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=LLAMA3)),
    "llama_bias": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **EXPERTS, head_dim=16)),
}


def build(name: str, folder: Path, shard_size: str = "50GB") -> PreTrainedModel:
    """A seeded random model, saved to `folder`; biases and norms are random too, so that losing one shows."""
    torch.manual_seed(3)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.dim() == 1) * 0.5)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model


class Meeting:
    """Collectives of `tp` threads: each puts its tensor down, waits for the rest, then looks."""

    def __init__(self, tp: int) -> None:
        self.tp = tp
        self._parts: list[torch.Tensor] = [torch.empty(0)] * tp
        self._barrier = threading.Barrier(tp, timeout=WAIT)

    def exchange(self, rank: int, tensor: torch.Tensor) -> list[torch.Tensor]:
        self._parts[rank] = tensor.clone()
        self._barrier.wait()
        parts = list(self._parts)
        self._barrier.wait()
        return parts

    def abort(self) -> None:
        self._barrier.abort()


class ThreadComm:
    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank = rank
        self.tp = meeting.tp
        self._meeting = meeting

    def all_reduce(self, t: torch.Tensor) -> torch.Tensor:
        return t.copy_(sum(self._meeting.exchange(self.rank, t)))

    def gather_cat(self, t: torch.Tensor) -> torch.Tensor | None:
        parts = self._meeting.exchange(self.rank, t)
        return torch.cat(parts, -1) if self.rank == 0 else None


class Ranks:
    """The ranks of one engine, each a thread with its own ModelRunner."""

    def __init__(
        self,
        folder: Path,
        tp: int = 1,
        dtype: str = "float32",
        pages: int = 64,
        page_size: int = 4,
        tuning: Tuning | None = None,
    ) -> None:
        self._meeting = Meeting(tp)
        self.runners = self._all(
            lambda rank: ModelRunner(
                folder,
                dtype=dtype,
                device="cpu",
                rank=rank,
                tp=tp,
                comm=ThreadComm(rank, self._meeting),
                page_size=page_size,
                tuning=tuning,
                pages=pages,
            )
        )

    def run(self, *slices: Slice) -> torch.Tensor:
        """Rank 0's logits; the other ranks must have none."""
        first, *rest = self._all(lambda rank: self.runners[rank].run(Batch(0, list(slices))))
        assert all(r is None for r in rest)
        assert first is not None
        return first

    def _all(self, work: Callable[[int], T]) -> list[T]:
        def guarded(rank: int) -> T:
            try:
                return work(rank)
            except BaseException:
                self._meeting.abort()
                raise

        with ThreadPoolExecutor(self._meeting.tp) as pool:
            return list(pool.map(guarded, range(self._meeting.tp)))


@contextmanager
def ranks_at_odds() -> Iterator[None]:
    """A machine that asks for more rows with one rank's weights than with another's."""
    first: list[int] = []  # the thread of the rank that packs first

    def rows(*_: object) -> int:
        first.append(threading.get_ident())
        return 8 if first[0] == threading.get_ident() else 2

    with mock.patch("kernels.ops.linear.reference.invariant_rows", rows):
        yield
