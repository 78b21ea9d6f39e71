"""Decode legs that wait for pages: first come, first served, a batch slot and a growth reserve kept."""

from __future__ import annotations

from engine.schedule.scheduler import Scheduler
from engine.schedule.sequence import Sequence


class Prealloc:
    """The prealloc queue. A leg leaves it with all pages of its prompt, or stays."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.queue: list[Sequence] = []
        self.granted: dict[str, Sequence] = {}

    def add(self, seq: Sequence) -> None:
        seq.holding = True
        self.queue.append(seq)

    def drop(self, seq: Sequence) -> None:
        if seq in self.queue:
            self.queue.remove(seq)
        self.granted.pop(seq.id, None)

    def arrived(self, id: str) -> None:
        """Its KV is complete: the leg no longer counts as granted, the scheduler has it now."""
        self.granted.pop(id, None)

    def grant(self, now: float, refused: bool) -> list[tuple[Sequence, list[int]]]:
        """Legs that got their pages in this turn. `refused` holds all of them back (a drill)."""
        out = []
        while self.queue:
            seq = self.queue[0]
            need = self._scheduler.pages_for(seq.length + 1)
            active = self._scheduler.active
            if len(active) + len(self.granted) >= self._scheduler.limits.max_running:
                seq.waiting_on = "slot"
                break
            # One page for each running sequence, so that a new leg does not at once preempt an older one.
            short = self._scheduler.pages.free < need + len(active)
            pages = None if refused or short else self._scheduler.pages.take(seq.id, need)
            if pages is None:
                seq.waiting_on = "pages"
                break
            self.queue.pop(0)
            self.granted[seq.id] = seq
            seq.move("preallocated", now, "transfer")
            out.append((seq, pages))
        return out
