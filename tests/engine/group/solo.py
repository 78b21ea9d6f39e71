"""A whole engine in one process, turned by hand: leader, scheduler, a tiny model, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.core.settings import Settings
from engine.core.types import Batch, Request, Sampling
from engine.faults import Faults
from engine.group.leader import Leader
from engine.group.messages import EngineConfig, Out
from engine.runner import ModelRunner, sample
from engine.transfer.commands import AgentInfo
from engine.transfer.coordinator import Transfer
from tests.engine.models.tiny import Meeting, ThreadComm, build

PAGE, PAGES = 4, 64


def tiny_runner(folder: Path) -> ModelRunner:
    """Several engines, one after the other, may have it: none reads what it has not written."""
    build("llama", folder)
    return ModelRunner(
        folder, dtype="float32", device="cpu", rank=0, tp=1, comm=ThreadComm(0, Meeting(1)),
        page_size=PAGE, pages=PAGES,
    )  # fmt: skip


class Solo:
    """`logits` are those of every step by their bits; `computed` counts tokens."""

    def __init__(
        self, runner: ModelRunner, *, budget: int = 32, running: int = 4, pages: int = PAGES,
        eos: tuple[int, ...] = (), model: str = "", **env: str,
    ) -> None:  # fmt: skip
        self.out: list[Out] = []
        self.logits: list[torch.Tensor] = []
        self.computed = 0
        self.settings = Settings.from_env(env)
        config = EngineConfig(
            instance="e", role="both", incarnation="i", model=model, host="", port=0, advertise="",
            pages=pages, page_size=runner.shape.page_size, token_budget=budget, max_running=running,
        )  # fmt: skip
        self.runner = runner
        self.max_model_len, self.eos, self.digest = runner.max_model_len, eos, runner.digest
        self.shape = runner.shape
        self.leader = Leader(config, self.settings, self, sample, lambda _: None, self.out.append, Faults())
        agent = AgentInfo(rank=0, metadata=b"", base=0, device=0, heads=(0, 1), pages=pages)
        transfer = Transfer(
            role="both", instance="e", incarnation="i", fingerprint={"layers": 1, "page_size": PAGE},
            agents=[agent], settings=self.settings, token=b"", ranks=lambda _: None, sink=self.leader,
        )  # fmt: skip
        self.leader.attach(transfer)

    def run(self, batch: Batch) -> torch.Tensor | None:
        self.computed += sum(len(piece.tokens) for piece in batch.slices)
        logits = self.runner.run(batch)
        if logits is not None:
            self.logits.append(logits.clone())
        return logits

    def submit(
        self, id: str, prompt: Sequence[int], *, grammar: str | None = None, earlier: int = 0, **sampling: Any
    ) -> None:
        request = Request(
            id=id, prompt=list(prompt), sampling=Sampling(**sampling), grammar=grammar, earlier=earlier
        )
        self.leader.submit(request)

    def turn(self) -> bool:
        """One turn of the loop; whether there was a step."""
        self.leader._handle_events()
        plan = self.leader._scheduler.plan(0.0)
        if plan is not None:
            self.leader._step(plan)
        self.leader.life.pages.check()
        return plan is not None

    def finish(self) -> None:
        self.turn()
        while self.leader.life.sequences:
            assert self.turn(), "nothing runs, and not all has ended"

    def tokens(self, id: str) -> list[int]:
        return [token for out in self.out if out.id == id for token in out.tokens]

    def ask(self, id: str, prompt: Sequence[int], count: int = 6, **sampling: Any) -> list[int]:
        """The answer of one request alone."""
        self.submit(id, prompt, max_tokens=count, **sampling)
        self.finish()
        return self.tokens(id)
