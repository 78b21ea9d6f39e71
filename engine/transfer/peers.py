"""The leader's table of peers: whose agents our ranks hold, who is linked, what went wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.settings import Settings
from engine.transfer import commands as c
from engine.transfer.deadlines import log_fired
from engine.transfer.handshake import Peer, PeerKey
from engine.transfer.ports import DeadlinePort, Ranks


@dataclass
class Entry:
    """`loaded` is the life whose agents the ranks hold (legacy fleets keep a dead one's: stale)."""

    peer: Peer
    since: float
    loaded: PeerKey | None = None
    adding: set[int] = field(default_factory=set)
    epoch: int = 0
    linked: bool = False
    error: str | None = None

    @property
    def stale(self) -> bool:
        return self.loaded is not None and self.loaded != self.peer.key


class Peers:
    """Called from the link's thread and from whoever brings reports; `ready` and `failed` must not block."""

    def __init__(
        self,
        *,
        ranks: Ranks,
        deadlines: DeadlinePort,
        settings: Settings,
        clock: Callable[[], float],
        ready: Callable[[PeerKey], None],
        failed: Callable[[PeerKey, str], None],
        write: bool,
        legacy: bool,
    ) -> None:
        self._ranks, self._deadlines, self._settings, self._clock = ranks, deadlines, settings, clock
        self._ready, self._failed, self._write, self._legacy = ready, failed, write, legacy
        self._entries: dict[str, Entry] = {}
        self._unlinked: dict[str, str] = {}
        self._epoch = 0
        self._lock = threading.RLock()

    def name(self, key: PeerKey) -> str:
        """What ranks call this peer: its life, or in a legacy fleet its instance."""
        return key.instance if self._legacy else str(key)

    def connected(self, peer: Peer) -> None:
        """Add the peer's agents unless this very life's are loaded and warm."""
        name = self.name(peer.key)
        with self._lock:
            self._unlinked.pop(peer.address, None)
            self._deadlines.cancel(("edge", name))
            entry = self._entries.get(name)
            if entry is None:
                self._forget(peer.key.instance)
                entry = self._entries[name] = Entry(peer, self._clock())
            entry.peer = peer
            if entry.loaded is not None and self._write:
                self._ready(peer.key)
            elif not entry.adding or not self._write:
                self._add(name, entry)

    def up(self, peer: Peer) -> None:
        with self._lock:
            entry = self._entries.get(self.name(peer.key))
            if entry is not None:
                entry.linked, entry.since, entry.error = True, self._clock(), None

    def lost(self, key: PeerKey, reason: str) -> None:
        """Not linked any more. What its ranks hold is given up when it does not come back in time."""
        name = self.name(key)
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.peer.key != key:
                return
            entry.linked, entry.since, entry.error = False, self._clock(), reason
            if not self._legacy:
                at = self._clock() + self._settings["handshake"]
                self._deadlines.arm(("edge", name), "handshake", at, lambda: self._give_up(name, entry))

    def fenced(self, key: PeerKey) -> None:
        with self._lock:
            entry = self._entries.get(self.name(key))
            if entry is not None and entry.peer.key == key:
                self._remove(self.name(key), entry)

    def renew(self, key: PeerKey) -> None:
        """Forget its agents, so that they are added anew. Legacy fleets keep them: that is their fault."""
        with self._lock:
            entry = self._entries.get(self.name(key))
            if entry is not None and entry.peer.key == key and not self._legacy:
                self._remove(self.name(key), entry)

    def refused(self, address: str, message: str) -> None:
        with self._lock:
            known = [e for e in self._entries.values() if e.peer.address == address]
            for entry in known:
                entry.error = message
            if not known:
                self._unlinked[address] = message

    def forgotten(self, address: str) -> None:
        with self._lock:
            self._unlinked.pop(address, None)

    def on_report(self, report: c.Report) -> None:
        """A rank's answer about a peer; other reports are ignored."""
        if not isinstance(report, c.PeerAdded | c.PeerError):
            return
        with self._lock:
            entry = self._entries.get(report.peer)
            if entry is None or entry.epoch != report.epoch or report.rank not in entry.adding:
                return
            if isinstance(report, c.PeerError):
                if report.late:
                    value = self._settings["handshake"]
                    self._deadlines.expired("link_failed", "handshake", value, value, entry.peer.key)
                entry.error = report.error
                self._remove(report.peer, entry)
                self._failed(entry.peer.key, report.error)
                return
            entry.adding.discard(report.rank)
            if not entry.adding:
                entry.loaded = entry.peer.key
                self._ready(entry.peer.key)

    def linked(self) -> list[PeerKey]:
        with self._lock:
            return [e.peer.key for e in self._entries.values() if e.linked]

    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    def unlinked(self) -> dict[str, str]:
        """Addresses that never were linked, with what went wrong last."""
        with self._lock:
            return dict(self._unlinked)

    def _add(self, name: str, entry: Entry) -> None:
        self._epoch += 1
        entry.epoch, entry.loaded = self._epoch, None
        entry.adding = set(range(self._ranks.tp))
        agents = entry.peer.agents
        self._ranks.broadcast(
            c.AddPeer(
                peer=name,
                tp=len(agents),
                metadata=[a.metadata for a in agents],
                bases=[a.base for a in agents],
                devices=[a.device for a in agents],
                heads=[a.heads for a in agents],
                pages=entry.peer.pages,
                page_size=entry.peer.page_size,
                writers=self._ranks.tp,
                memory=agents[0].memory if agents else "DRAM",
                write=self._write,
                epoch=self._epoch,
                deadline=self._settings["handshake"],
            )
        )

    def _remove(self, name: str, entry: Entry) -> None:
        self._deadlines.cancel(("edge", name))
        entry.loaded, entry.adding = None, set()
        self._ranks.broadcast(c.RemovePeer(name))

    def _give_up(self, name: str, entry: Entry) -> bool:
        with self._lock:
            if entry.linked or self._entries.get(name) is not entry or entry.loaded is None:
                return False
            age = self._clock() - entry.since
            log_fired("peer_lost", "handshake", self._settings["handshake"], age, entry.peer.key)
            self._remove(name, entry)
            return True

    def _forget(self, instance: str) -> None:
        """Another life of the instance is here: the rows of earlier ones go."""
        for name in [n for n, e in self._entries.items() if e.peer.key.instance == instance and not e.linked]:
            if self._entries[name].loaded or self._entries[name].adding:
                self._remove(name, self._entries[name])
            del self._entries[name]
