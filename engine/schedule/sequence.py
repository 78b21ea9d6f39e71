"""One request inside a scheduler: its tokens, how far its KV is computed, and its stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.core.types import Request, Stage


@dataclass
class Sequence:
    """`computed` counts tokens whose KV is in the pool; `output` are generated tokens.

    `stop_after_prefill` marks a prefill leg (ends in the inflight queue after one token), `wanted` one
    whose decode has said where its KV goes, and
    `holding` keeps a decode leg out of batches until its KV has arrived. `key` is its name inside the
    engine where the request's id is still the owner of quarantined pages.

    The first `prefilled` tokens have their KV from prefill steps, here or for an earlier request; the first
    `published` pages are known to others. `keys` are what its pages are known by.
    """

    request: Request
    arrived: float
    stop_after_prefill: bool = False
    wanted: bool = False
    holding: bool = False
    stage: Stage = "waiting"
    since: float = 0.0
    waiting_on: str | None = None
    computed: int = 0
    output: list[int] = field(default_factory=list)
    preempted: int = 0
    key: str | None = None
    prefilled: int = 0
    published: int = 0
    keys: list[bytes] = field(default_factory=list)
    guide: Any = None  # how far its output has come in its grammar, the leader's

    @property
    def id(self) -> str:
        return self.key or self.request.id

    @property
    def ahead(self) -> bool:
        """A prefill leg that is computed ahead of what decode has asked for."""
        return self.stop_after_prefill and not self.wanted

    @property
    def tokens(self) -> list[int]:
        return self.request.prompt + self.output

    @property
    def length(self) -> int:
        return len(self.request.prompt) + len(self.output)

    def move(self, stage: Stage, now: float, waiting_on: str | None = None) -> None:
        """Enter a stage; its age counts from `now`, unless it is in it already."""
        if stage != self.stage:
            self.stage, self.since = stage, now
        self.waiting_on = waiting_on

    def next_run(self, limit: int) -> list[int]:
        """The next tokens to compute, at most `limit`.

        A prompt's last token is not left over alone where that can be: it would be computed as a decoded one
        is, whose sums are in another order.
        """
        if limit > 2 and self.left == limit + 1:
            limit -= 1
        return self.tokens[self.computed : self.computed + limit]

    @property
    def left(self) -> int:
        """Tokens that still have no KV; 1 for a sequence that is decoding."""
        return self.length - self.computed
