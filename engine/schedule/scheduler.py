"""Continuous batching with chunked prefill and preemption.

A step takes one token of every running sequence first (decode is what a client feels), then fills the
token budget with chunks of prompts in order of arrival. When a running sequence needs a page and none is
free, the youngest running one is sent back to the waiting queue and recomputed later.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.pages import PageAllocator
from engine.core.types import Batch, Slice
from engine.schedule.sequence import Sequence


@dataclass(frozen=True)
class Limits:
    """`token_budget` tokens a step; `max_running` sequences in batches at once; `page_size` tokens."""

    token_budget: int
    max_running: int
    page_size: int


@dataclass
class Plan:
    """A step to run: the batch, and the sequence behind each of its slices."""

    batch: Batch
    sequences: list[Sequence]


class Scheduler:
    """Owns the order of sequences; the allocator owns the pages. One thread."""

    def __init__(self, limits: Limits, pages: PageAllocator) -> None:
        self.limits = limits
        self.pages = pages
        self.waiting: list[Sequence] = []
        self.active: list[Sequence] = []
        self.preemptions = 0
        self._step = 0

    def add(self, seq: Sequence) -> None:
        self.waiting.append(seq)

    def resume(self, seq: Sequence, now: float) -> None:
        """Put a sequence whose KV arrived from elsewhere straight among the active ones."""
        seq.holding = False
        seq.move("ready", now)
        self.active.append(seq)

    def drop(self, seq: Sequence) -> None:
        """Forget a sequence wherever it stands; its pages are the caller's to give back."""
        for queue in (self.waiting, self.active):
            if seq in queue:
                queue.remove(seq)

    def slot_free(self) -> bool:
        return len(self.active) < self.limits.max_running

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.page_size)

    def plan(self, now: float) -> Plan | None:
        """The next step, or None when nothing can run."""
        self._admit(now)
        budget = self.limits.token_budget
        chosen: list[tuple[Sequence, list[int]]] = []
        for seq in sorted(self.active, key=lambda s: (s.left > 1, s.arrived)):
            if budget <= 0:
                break
            if seq not in self.active:
                continue  # preempted for an older one in this very loop
            run = seq.next_run(budget)
            if not self._grow(seq, seq.computed + len(run), now):
                continue
            chosen.append((seq, run))
            budget -= len(run)
        chosen = [(seq, run) for seq, run in chosen if seq in self.active]
        return self._batch(chosen, now) if chosen else None

    def _batch(self, chosen: list[tuple[Sequence, list[int]]], now: float) -> Plan:
        self._step += 1
        slices = []
        for seq, run in chosen:
            seq.move("running" if seq.output else "prefilling", now)
            last = seq.computed + len(run) == seq.length
            slices.append(Slice(run, seq.computed, list(self.pages.pages(seq.id)), last))
        return Plan(Batch(self._step, slices), [seq for seq, _ in chosen])

    def commit(self, plan: Plan) -> list[Sequence]:
        """Count the step's tokens as computed; returns the sequences that are due a sampled token."""
        due = []
        for seq, piece in zip(plan.sequences, plan.batch.slices, strict=True):
            seq.computed += len(piece.tokens)
            if piece.sample:
                due.append(seq)
        return due

    def _admit(self, now: float) -> None:
        """Waiting sequences become active in order of arrival while slots and first pages last."""
        for seq in list(self.waiting):
            if seq.holding:
                continue
            if not self.slot_free():
                seq.waiting_on = "slot"
                return
            # A prefill leg cannot be preempted, so it takes all its pages at once: two legs that each
            # hold half of the pool would wait for one another for ever.
            whole = seq.stop_after_prefill
            need = self.pages_for(seq.length if whole else min(seq.length, self.limits.token_budget))
            if self.pages.free < need or (whole and self.pages.take(seq.id, need) is None):
                seq.waiting_on = "pages"
                return
            self.waiting.remove(seq)
            self.active.append(seq)
            seq.move("prefilling", now)

    def _grow(self, seq: Sequence, tokens: int, now: float) -> bool:
        """Make room for `tokens` tokens of `seq`, preempting younger sequences if it must."""
        need = self.pages_for(tokens) - len(self.pages.pages(seq.id))
        while need > 0 and self.pages.take(seq.id, need) is None:
            victim = self._youngest(seq)
            if victim is None:
                seq.waiting_on = "pages"
                return False
            self._preempt(victim, now)
        return True

    def _youngest(self, seq: Sequence) -> Sequence | None:
        younger = [
            s for s in self.active if s is not seq and s.arrived > seq.arrived and not s.stop_after_prefill
        ]
        return max(younger, key=lambda s: s.arrived, default=None)

    def _preempt(self, victim: Sequence, now: float) -> None:
        self.pages.give_back(victim.id)
        victim.computed = 0
        victim.preempted += 1
        self.preemptions += 1
        self.active.remove(victim)
        self.waiting.insert(0, victim)
        victim.move("waiting", now, "pages")
