"""Continuous batching with chunked prefill and preemption.

A step takes one token of every running sequence first (decode is what a client feels), then fills the
token budget with chunks of prompts in order of arrival. When a running sequence needs a page and none is
free, the youngest running one is sent back to the waiting queue and recomputed later.

Prefill legs that decode wants (it has their pages) come first: they are sure to leave. The others are
computed ahead, within a bound, and give their pages up when a wanted leg lacks them: decode may want legs
in another order than they came here, and two sides that each wait for the other's next would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.cache.pages import PageAllocator
from engine.cache.prefix import Prefixes
from engine.core.types import Batch, Slice
from engine.schedule.sequence import Sequence

# Legs that decode has not asked for hold at most this share of the pool (one leg may always be computed).
AHEAD_SHARE = 0.5


@dataclass(frozen=True)
class Limits:
    """`token_budget` tokens a step; `max_running` sequences in batches at once; `page_size` tokens.

    At most `max_running` prefill legs are computed ahead of decode, or wait computed for it. A sequence's
    first `state_pages` pages hold no tokens: see `Shape`.
    """

    token_budget: int
    max_running: int
    page_size: int
    state_pages: int = 0


@dataclass
class Plan:
    """A step to run: the batch, and the sequence behind each of its slices."""

    batch: Batch
    sequences: list[Sequence]


class Scheduler:
    """Owns the order of sequences; the allocator owns the pages. One thread.

    `give_up` tells the transfer layer that a leg's pages are about to go; False when decode has asked for
    them meanwhile. Without `prefixes` every prompt is computed whole.
    """

    def __init__(
        self,
        limits: Limits,
        pages: PageAllocator,
        give_up: Callable[[Sequence], bool] = lambda seq: not seq.wanted,
        prefixes: Prefixes | None = None,
    ) -> None:
        self.limits = limits
        self.pages = pages
        self.prefixes = prefixes or Prefixes(pages, limits.page_size, enabled=lambda: False)
        self.waiting: list[Sequence] = []
        self.active: list[Sequence] = []
        self.inflight: list[Sequence] = []
        self.preemptions = 0
        self._give_up = give_up
        self._step = 0

    def add(self, seq: Sequence) -> None:
        self.waiting.append(seq)

    def resume(self, seq: Sequence, now: float) -> None:
        """Put a sequence whose KV arrived from elsewhere straight among the active ones."""
        seq.holding = False
        seq.move("ready", now)
        self.active.append(seq)

    def to_inflight(self, seq: Sequence, now: float) -> None:
        """A prefill leg is computed: it holds its pages until its KV was handed over."""
        self.active.remove(seq)
        self.inflight.append(seq)
        seq.move("inflight", now)

    def distrust(self, seq: Sequence) -> None:
        """The KV of `seq` is corrupt: no later prompt is given it, nor what others compute over it."""
        self.pages.forget(seq.id)
        self.prefixes.renew()
        for other in self.waiting:
            other.keys.clear()

    def drop(self, seq: Sequence) -> None:
        """Forget a sequence wherever it stands; its pages are the caller's to give back."""
        for queue in (self.waiting, self.active, self.inflight):
            if seq in queue:
                queue.remove(seq)

    def slot_free(self) -> bool:
        return len(self.active) < self.limits.max_running

    @property
    def runnable(self) -> bool:
        """Whether a sequence is in a batch and waits for nothing but its turn."""
        return any(seq.waiting_on != "pages" for seq in self.active)

    def pages_for(self, tokens: int) -> int:
        return self.limits.state_pages - (-tokens // self.limits.page_size)

    def in_order_of_transfer(self, pages: list[int]) -> list[int]:
        """A sequence's pages as they are handed over: those of its state last, for they change to the end."""
        state = self.limits.state_pages
        return [*pages[state:], *pages[:state]]

    def plan(self, now: float) -> Plan | None:
        """The next step, or None when nothing can run."""
        self._admit(now)
        budget = self.limits.token_budget
        chosen: list[tuple[Sequence, list[int]]] = []
        for seq in sorted(self.active, key=lambda s: (s.left > 1, s.ahead, s.arrived)):
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
            if len(piece.tokens) > 1 and seq.prefilled == piece.start and self.pages.pages(seq.id):
                seq.prefilled = seq.computed
                self.publish(seq)
            if piece.sample:
                due.append(seq)
        return due

    def publish(self, seq: Sequence) -> None:
        """Let later prompts have the pages of this one that are complete."""
        whole = seq.prefilled // self.limits.page_size
        self.prefixes.publish(seq.id, seq.tokens, seq.keys, seq.published, whole)
        seq.published = max(seq.published, whole)

    def _admit(self, now: float) -> None:
        """Waiting sequences become active while slots and first pages last: wanted ones, then by arrival."""
        short = full = False
        for seq in sorted((s for s in self.waiting if not s.holding), key=lambda s: s.ahead):
            if seq.ahead and (full or not self._may_run_ahead(seq)):
                seq.waiting_on = "decode"
                full = full or not seq.preempted  # a smaller one that came later does not pass it by
            elif not short:
                short = not self._enter(seq, now)
            elif seq.waiting_on == "decode":
                seq.waiting_on = None

    def _enter(self, seq: Sequence, now: float) -> bool:
        """Give a waiting sequence a slot and pages, if there are any for it."""
        if not self.slot_free() and not (seq.wanted and self._reclaim(0, self.active, now)):
            seq.waiting_on = "slot"
            return False
        shared = self.prefixes.share(seq.id, seq.tokens, seq.keys)
        if self._is_computed(seq, shared // self.limits.page_size):
            self.pages.give_back(seq.id)
            seq.waiting_on = None  # but its turn, which comes with the page
            return True
        # A prefill leg takes all its pages at once: two legs that each hold half of the pool would wait
        # for one another for ever.
        whole = seq.stop_after_prefill
        tokens = seq.length if whole else min(seq.length, shared + self.limits.token_budget)
        need = self.pages_for(tokens) - len(self.pages.pages(seq.id))
        if self.pages.free < need and not (seq.wanted and self._reclaim(need, self._holders(), now)):
            self.pages.give_back(seq.id)
            seq.waiting_on = "pages"
            return False
        if whole:
            self.pages.take(seq.id, need)
        if not seq.preempted:
            self.prefixes.count(seq.length, shared)
        seq.computed = seq.prefilled = shared
        seq.published = shared // self.limits.page_size
        self.waiting.remove(seq)
        self.active.append(seq)
        seq.move("prefilling", now)
        return True

    def _is_computed(self, seq: Sequence, page: int) -> bool:
        """Whether the first page that `seq` lacks is being computed for another, which is not ahead of it."""
        return page < len(seq.keys) and any(
            other.published <= page < len(other.keys)
            and other.keys[page] == seq.keys[page]
            and other.prefilled == other.computed
            and (seq.ahead or not other.ahead)
            for other in self.active
        )

    def _holders(self) -> list[Sequence]:
        return [*self.active, *self.inflight]

    def _may_run_ahead(self, seq: Sequence) -> bool:
        """Whether a leg may be computed before decode asks for it; once given up, it waits to be asked."""
        ahead = [s for s in self._holders() if s.ahead]
        if not ahead or seq.preempted:
            return not seq.preempted
        held = self.pages.span(s.id for s in ahead) + self.pages_for(seq.length)
        return len(ahead) < self.limits.max_running and held <= self.pages.total * AHEAD_SHARE

    def _reclaim(self, need: int, among: list[Sequence], now: float) -> bool:
        """Take the pages of legs that nobody wants, the youngest first, until `need` are free.

        Nothing is taken when that could not be enough; `need` 0 takes one leg, for its slot.
        """
        ahead = sorted((s for s in among if s.ahead), key=lambda s: s.arrived)
        if not ahead or self.pages.free + self.pages.gain(s.id for s in ahead) < need:
            return False
        taken = False
        while ahead and not (taken and self.pages.free >= need):
            victim = ahead.pop()
            if self._give_up(victim):
                self._send_back(victim, now, "decode")
                taken = True
            else:
                victim.wanted = True
        return taken and self.pages.free >= need

    def _grow(self, seq: Sequence, tokens: int, now: float) -> bool:
        """Make room for `tokens` tokens of `seq`, preempting younger sequences if it must."""
        need = self.pages_for(tokens) - len(self.pages.pages(seq.id))
        while need > 0 and self.pages.take(seq.id, need) is None:
            victim = self._youngest(seq)
            if victim is None:
                seq.waiting_on = "pages"
                return False
            self._send_back(victim, now, "pages")
        return True

    def _youngest(self, seq: Sequence) -> Sequence | None:
        younger = [
            s for s in self.active if s is not seq and s.arrived > seq.arrived and not s.stop_after_prefill
        ]
        return max(younger, key=lambda s: s.arrived, default=None)

    def _send_back(self, victim: Sequence, now: float, waiting_on: str) -> None:
        """To the head of the waiting queue without pages, to be computed again."""
        self.drop(victim)
        self.pages.give_back(victim.id)
        victim.computed = victim.prefilled = victim.published = 0
        victim.keys.clear()
        victim.preempted += 1
        self.preemptions += 1
        if victim.stop_after_prefill:
            victim.output.clear()
        self.waiting.insert(0, victim)
        victim.move("waiting", now, waiting_on)
