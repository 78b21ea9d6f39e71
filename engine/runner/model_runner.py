"""One rank's model, its part of the KV pool, and a forward step over both."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from engine.core.errors import ConfigError, ModelError
from engine.core.types import Batch, Slice
from engine.layers.shard import Comm, Shard
from engine.runner.audit import Audit
from engine.runner.family import family_of
from engine.runner.graphs import DecodeGraphs, refusal
from engine.runner.planning import Planner
from engine.runner.tuning import Tuning
from engine.weights import Checkpoint, ModelConfig, model_digest
from kernels.streams.interface import MAIN

log = logging.getLogger("pdctl.engine")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelRunner:
    """`pool` is [pages, local KV heads, layers, 2, page_size, head_dim], contiguous and zero-filled; bytes in
    those dimensions where the model lays out its pages.

    `shape` describes a page of the whole model, `streams` are what its work is launched on. ModelError when
    the folder cannot be served like this.
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
        tuning = tuning or Tuning()
        self.streams = tuning.streams(where)
        shard = Shard.of(config, comm, kind, where, self.streams)
        checkpoint = Checkpoint(model_dir, config.quantised_block)
        family = family_of(checkpoint, config, shard, page_size, pages, tuning)
        self._model, self._whole, self._planner, self.shape, self._index = family
        self.pool = self._whole[:pages]
        self._graphs: DecodeGraphs | None = None
        self._config, self._tuning = config, tuning
        self._audit: Audit | None = None
        if self._index is not None and tuning.index_check:
            self._audit = Audit(self._index, self.pool, self.shape.state_pages, comm, tuning.index_check)
        self._folder, self._comm = model_dir, comm
        self.max_model_len = config.max_position
        self.digest = model_digest(model_dir)
        self.eos = config.eos

    def prove(self) -> None:
        """One step in the last pages, before they are anybody's: ModelError when what it gives is no number.

        Every rank calls it. Damaged weights can be finite numbers, each by itself.
        """
        last = self.pool.shape[0]
        pages = list(range(last - 1 - self.shape.state_pages, last))
        logits = self.run(Batch(0, [Slice([0], 0, pages, sample=True)]))
        if logits is not None and not logits.isfinite().all():
            raise ModelError(
                "weights_damaged",
                f"The weights in {self._folder} are damaged: the model's logits are not finite numbers.",
                "Fetch or convert the model again.",
            )

    def prepare(self) -> None:
        """Capture the decode steps, where the device can and the model's can be; before any request.

        A capture that fails leaves the engine without, which the log has in one sentence.
        """
        if not self.streams.captures:
            return
        why = refusal(self._config, self._comm.tp) if self._tuning.graphs else "PD_DECODE_GRAPHS is 0"
        if not why and isinstance(self._planner, Planner):
            with torch.inference_mode():
                most = self._tuning.max_running
                graphs = DecodeGraphs(self._model, self._whole, self._planner, self.streams, most)
                try:
                    self.streams.launch(MAIN, "capture", graphs.capture)
                    self._graphs = graphs
                except RuntimeError as error:
                    why = f"the device refused it ({str(error).splitlines()[0]})"
        if why:
            log.warning("Decode steps are not captured as graphs, and cost more of the CPU: %s.", why)

    def run(self, batch: Batch) -> torch.Tensor | None:
        """One step: writes the batch's KV into the pool, returns logits of the slices that ask for them.

        float32 [sampled, vocab] in the order of those slices on rank 0; None elsewhere or when none asks.
        A slice that does not fit its pages or the model is a ValueError before anything is written.
        """
        if not batch.slices:
            return None
        with torch.inference_mode():
            logits = self.streams.launch(MAIN, "step", lambda: self._step(batch))
            if self._audit is not None:
                self._audit.after(batch)
            return logits

    def _step(self, batch: Batch) -> torch.Tensor | None:
        size = self._graphs.size(batch) if self._graphs is not None else None
        if self._graphs is not None and size is not None:
            return self._graphs.run(batch, size)
        return self._model(self.pool, self._planner.plan(batch))

    def damage(self, pages: Sequence[int], tokens: int) -> str:
        """Which index-K of a sequence is not what was stored, as words; empty when right, or without any.

        `pages` begin with those of its `tokens` tokens. May be called from another thread, for pages that
        no step writes.
        """
        if self._index is None:
            return ""
        with torch.inference_mode():
            return self._index.damage(self.pool, pages, tokens)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError("bad_value", f"--device {name} is not a device; use cpu or cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError("no_gpu", f"--device {name}: this torch finds no GPU.", "Use --device cpu.")
    return device
