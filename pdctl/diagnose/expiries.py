"""KV that prefills released because nobody fetched it in time, and reads that came later; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.adapters.traces import Event
from pdctl.diagnose.facts import Facts

_CHILD = re.compile(r"(?:^|-)(?P<n>\d{1,3})_(?P<parent>\S{3,})")


@dataclass(frozen=True)
class Expiries:
    """`unread` are releases that no worker had fetched; several ranks write one line each for one request."""

    unread: tuple[Event, ...]
    late: tuple[Event, ...]

    @property
    def ids(self) -> set[str]:
        return {id_of(e) for e in self.unread}

    @property
    def read_after(self) -> set[str]:
        """Requests that were read after their KV had been released."""
        late = {id_of(e) for e in self.late}
        return late & self.ids or (late if not self.ids else set())

    @property
    def children(self) -> set[str]:
        """Requests that are one of several choices of their parent."""
        return {i for i in self.ids if _CHILD.search(i)}

    @property
    def only_children(self) -> bool:
        return bool(self.ids) and self.children == self.ids


def id_of(event: Event) -> str:
    """The request that a line is about, as the engine calls it."""
    return event.values.get("id", "").strip(".,'\"")


def expiries(facts: Facts, parties: Iterable[str] = ()) -> Expiries:
    names = set(parties)
    chosen = [e for e in facts.events("vllm.kv_expired", "vllm.late_read") if not names or e.party in names]
    unread = tuple(e for e in chosen if e.sign == "vllm.kv_expired" and e.values.get("n", "0") == "0")
    return Expiries(unread, tuple(e for e in chosen if e.sign == "vllm.late_read"))
