"""One rank's model, its part of the KV pool, and a forward step over both."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.core.errors import ConfigError, ModelError
from engine.core.types import Batch, Shape, Slice
from engine.layers.shard import Comm, Shard
from engine.models import Llama
from engine.runner.planning import Planner
from engine.runner.pool import allocate_pool
from engine.runner.tuning import Tuning
from engine.weights import Checkpoint, ModelConfig, model_digest
from engine.weights.rope import scaled_frequencies
from kernels.ops.rope import rope_table

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelRunner:
    """`pool` is [pages, local KV heads, layers, 2, page_size, head_dim], contiguous and zero-filled.

    `shape` describes a page of the whole model, `streams` are what its work is launched on. ModelError when the folder cannot be served like this.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        dtype: str,
        device: str,
        rank: int,
        tp: int,
        comm: Comm,
        page_size: int,
        pages: int,
        tuning: Tuning | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ConfigError("bad_value", f"--dtype {dtype} is not one of {', '.join(DTYPES)}.")
        if (rank, tp) != (comm.rank, comm.tp):
            raise ValueError(f"rank {rank} of {tp} was given the communicator of {comm.rank} of {comm.tp}")
        if page_size < 1 or pages < 1:
            raise ConfigError("bad_value", f"{pages} pages of {page_size} tokens are no pool.")
        where, kind = _device(device), DTYPES[dtype]
        config = ModelConfig.load(model_dir)
        shard = Shard.of(config, comm, kind, where)
        with torch.inference_mode():
            self._model = Llama(Checkpoint(model_dir), config, shard)
            frequencies = scaled_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
            cos, sin = rope_table(frequencies, config.max_position, kind)
        # Outside inference mode, so that transfers and tests may write into it anywhere.
        local = shard.kv_heads[1] - shard.kv_heads[0]
        self.pool = allocate_pool((pages, local, config.layers, 2, page_size, config.head_dim), kind, where)
        tuning = tuning or Tuning()
        self.streams = tuning.streams(where)
        self._planner = Planner(
            self.pool,
            cos.to(where),
            sin.to(where),
            self._model.rows,
            config.vocab_size,
            tuning.workspace(config, shard),
            tuning.target_ctas,
        )
        self.shape = Shape(
            layers=config.layers,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            page_size=page_size,
            itemsize=kind.itemsize,
        )
        self._folder = model_dir
        self.max_model_len = config.max_position
        self.digest = model_digest(model_dir)
        self.eos = config.eos

    def prove(self) -> None:
        """One step in the last page, which belongs to nobody: ModelError when what it gives is no number.

        Every rank calls it. Damaged weights can be finite numbers, each by itself.
        """
        pages = [self.pool.shape[0] - 1]
        logits = self.run(Batch(0, [Slice([0], 0, pages, sample=True)]))
        if logits is not None and not logits.isfinite().all():
            raise ModelError(
                "weights_damaged",
                f"The weights in {self._folder} are damaged: the model's logits are not finite numbers.",
                "Fetch or convert the model again.",
            )

    def run(self, batch: Batch) -> torch.Tensor | None:
        """One step: writes the batch's KV into the pool, returns logits of the slices that ask for them.

        float32 [sampled, vocab] in the order of those slices on rank 0; None elsewhere or when none asks.
        A slice that does not fit its pages or the model is a ValueError before anything is written.
        """
        if not batch.slices:
            return None
        with torch.inference_mode():
            return self._model(self.pool, self._planner.plan(batch))


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError("bad_value", f"--device {name} is not a device; use cpu or cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError("no_gpu", f"--device {name}: this torch finds no GPU.", "Use --device cpu.")
    return device
