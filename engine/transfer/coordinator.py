"""The transfer layer of one engine behind one class: link, rooms, peers and deadlines wired together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypedDict

from engine.core.errors import RequestError
from engine.core.settings import Settings
from engine.core.types import FirstToken, Role
from engine.faults import Faults
from engine.transfer import commands as c
from engine.transfer import messages as m
from engine.transfer.deadlines import Deadlines
from engine.transfer.handshake import Identity, Peer, PeerKey
from engine.transfer.layout import OPAQUE
from engine.transfer.link import Link
from engine.transfer.peers import Entry, Peers
from engine.transfer.ports import LinkPort, Ranks, RoomView, Sink
from engine.transfer.receiver import Receiver
from engine.transfer.rooms import Counters, PeerStats
from engine.transfer.sender import Sender


class _NoLink:
    """What a role without rooms talks to."""

    def send(self, peer: PeerKey, message: m.RoomMessage) -> None:
        del peer, message

    def demand(self, address: str) -> None:
        del address


class _Common(TypedDict):
    """What Sender and Receiver both are given."""

    ranks: Ranks
    link: LinkPort
    deadlines: Deadlines
    sink: Sink
    settings: Settings
    clock: Callable[[], float]
    faults: Faults


class Transfer:
    """What the leader uses. Every method may be called from any thread; only `start` and `stop` block.

    `agents` are this engine's ranks in order; `ranks` hands a command to all of them in one order and does
    not block. `sender` exists for role prefill, `receiver` for role decode, neither for both.
    """

    def __init__(
        self,
        *,
        role: Role,
        instance: str,
        incarnation: str,
        fingerprint: dict[str, str | int],
        agents: list[c.AgentInfo],
        settings: Settings,
        token: bytes,
        ranks: Callable[[c.Command], None],
        sink: Sink,
        host: str = "127.0.0.1",
        bootstrap_port: int | None = None,
        peers: Sequence[str] = (),
        legacy: bool = False,
        faults: Faults | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        group = _group(agents, fingerprint, ranks)
        self._clock, self._host, self._port, self._dials = clock, host, bootstrap_port, list(peers)
        self.faults = faults or Faults()
        self.deadlines = Deadlines(clock)
        self.sender: Sender | None = None
        self.receiver: Receiver | None = None
        me = Identity(instance, incarnation, role, fingerprint, agents)
        legacy = legacy and role == "prefill"
        self._link: Link | None = None
        if role != "both":
            self._link = Link(me, token, settings, self, self.deadlines.expired, legacy)
        link = self._link or _NoLink()
        common = _Common(
            ranks=group, link=link, deadlines=self.deadlines, sink=sink, settings=settings, clock=clock,
            faults=self.faults,
        )  # fmt: skip
        if role == "prefill":
            self.sender = Sender(legacy=legacy, **common)
        elif role == "decode":
            self.receiver = Receiver(**common)
        self._peers = Peers(
            ranks=group,
            deadlines=self.deadlines,
            settings=settings,
            clock=clock,
            ready=self._edge_ready,
            failed=self._edge_failed,
            write=role == "prefill",
            legacy=legacy,
        )

    def start(self) -> int | None:
        """Start the deadline thread and the link; the bound link port. ConfigError when it is in use."""
        self.deadlines.start()
        if self._link is None:
            return None
        port = self._port if self.sender is not None else None
        return self._link.start(self._host, port, self._dials if self.receiver is not None else [])

    def stop(self) -> None:
        if self._link is not None:
            self._link.stop()
        self.deadlines.stop()

    def open(self, room: int, rid: str, peer_hint: str | None = None) -> None:
        """Prefill: see Sender.open."""
        self._need_sender().open(room, rid, peer_hint)

    def chunk(self, room: int, pages: Sequence[int], complete: int) -> bool:
        """Prefill: see Sender.chunk."""
        return self._need_sender().chunk(room, pages, complete)

    def computed(self, room: int, tokens: int, pages: Sequence[int], first: FirstToken) -> bool:
        """Prefill: see Sender.computed."""
        return self._need_sender().computed(room, tokens, pages, first)

    def give_up(self, room: int) -> bool:
        """Prefill: see Sender.give_up."""
        return self._need_sender().give_up(room)

    def request(self, room: int, rid: str, address: str) -> None:
        """Decode: see Receiver.request."""
        self._need_receiver().request(room, rid, address)

    def grant(self, room: int, pages: Sequence[int], tokens: int) -> bool:
        """Decode: see Receiver.grant."""
        return self._need_receiver().grant(room, pages, tokens)

    def abort(self, room: int, by: str) -> bool:
        """End a room as aborted; False when it is unknown or has ended."""
        rooms = self.sender or self.receiver
        return rooms is not None and rooms.abort(room, by)

    def fail(self, room: int, code: str, message: str) -> bool:
        """End a room as failed; False when it is unknown or has ended."""
        rooms = self.sender or self.receiver
        return rooms is not None and rooms.fail(room, code, message)

    def timeouts_changed(self) -> None:
        """Call after Settings.set: deadlines already armed move to the new values."""
        rooms = self.sender or self.receiver
        if rooms is not None:
            rooms.timeouts_changed()

    def on_report(self, report: c.Report) -> None:
        """Every report of every rank of this engine."""
        self._peers.on_report(report)
        rooms = self.sender or self.receiver
        if rooms is not None:
            rooms.on_report(report)

    def snapshot(self) -> list[RoomView]:
        """The rooms that have not ended or are not quiet yet."""
        rooms = self.sender or self.receiver
        return rooms.snapshot() if rooms is not None else []

    def rooms(self) -> dict[int, dict[str, object]]:
        """`snapshot` by room number, each as a JSON object."""
        return {view.room: asdict(view) for view in self.snapshot()}

    def linked(self) -> list[PeerKey]:
        return self._peers.linked()

    def peers_document(self) -> list[dict[str, object]]:
        """The `peers` array of /v1/state; an address that never linked has null for instance."""
        rows = [self._row(entry) for entry in self._peers.entries()]
        rows += [_unlinked_row(address, error) for address, error in self._peers.unlinked().items()]
        return rows

    def counters_document(self) -> dict[str, object]:
        """This layer's part of `counters` in /v1/state."""
        rooms = self.sender or self.receiver
        counters = rooms.counters if rooms is not None else Counters()
        doc: dict[str, object] = {k: v for k, v in asdict(counters).items() if k != "by_peer"}
        doc["deadlines_fired"] = self.deadlines.fired()
        doc["link_dropped"] = self._link.dropped if self._link is not None else 0
        return doc

    def relink(self, instance: str, address: str = "") -> dict[str, object]:
        """Drop the link with one peer and what ranks hold of it, and link anew; decode dials at once.

        Its rooms fail with `peer_lost`. `address` is for a prefill that has never said its name. RequestError
        for a peer that is not known here. The answer is of the moment before.
        """
        lives = [e for e in self._peers.entries() if e.peer.key.instance == instance]
        was = self._row(lives[-1]) if lives else _unlinked_row(address, "")
        if self._link is None or not (lives or address in (*self._dials, *self._peers.unlinked())):
            raise RequestError("unknown_peer", f"This engine knows no {instance}.", 404)
        for entry in lives:
            self._link.relink(entry.peer.key)
        if self.receiver is not None:
            self._link.demand(str(was["address"]))
        return {"peer": instance, "linked": was["linked"], "rooms": was["rooms_open"]}

    # Events of the link, on its thread.

    def connected(self, peer: Peer) -> None:
        self._peers.connected(peer)

    def up(self, peer: Peer) -> None:
        self._peers.up(peer)
        if self.sender is not None:
            self.sender.on_peer_up(peer.key, peer.pages, peer.page_size)
        if self.receiver is not None:
            self.receiver.on_peer_up(peer.key, peer.address)

    def lost(self, peer: PeerKey, reason: str) -> None:
        self._peers.lost(peer, reason)
        rooms = self.sender or self.receiver
        if rooms is not None:
            rooms.on_peer_lost(peer, reason)

    def fenced(self, peer: PeerKey) -> None:
        self._peers.fenced(peer)
        if self.receiver is not None:
            self.receiver.on_peer_fenced(peer)

    def renew(self, peer: PeerKey) -> None:
        self._peers.renew(peer)

    def refused(self, address: str, code: str, message: str) -> None:
        self._peers.refused(address, message)
        if code and self.receiver is not None:
            self.receiver.on_refused(address, code, message)

    def forgotten(self, address: str) -> None:
        self._peers.forgotten(address)
        if self.receiver is not None:
            self.receiver.on_forgotten(address)

    def message(self, peer: PeerKey, message: m.RoomMessage) -> None:
        rooms = self.sender or self.receiver
        if rooms is not None:
            rooms.on_message(peer, message)

    def _edge_ready(self, peer: PeerKey) -> None:
        if self._link is not None:
            self._link.edge_ready(peer)

    def _edge_failed(self, peer: PeerKey, error: str) -> None:
        if self._link is not None:
            self._link.edge_failed(peer, error)

    def _need_sender(self) -> Sender:
        if self.sender is None:
            raise RuntimeError("only a prefill engine sends KV")
        return self.sender

    def _need_receiver(self) -> Receiver:
        if self.receiver is None:
            raise RuntimeError("only a decode engine receives KV")
        return self.receiver

    def _row(self, entry: Entry) -> dict[str, object]:
        key, now = entry.peer.key, self._clock()
        rooms = self.sender or self.receiver
        stats = rooms.counters.by_peer.get(key, PeerStats()) if rooms is not None else PeerStats()
        heard = self._link.heard_at(key) if self._link is not None else None
        return {
            "instance": key.instance,
            "incarnation": key.incarnation,
            "address": entry.peer.address,
            "linked": entry.linked,
            "since_age_s": now - entry.since,
            "last_heard_age_s": None if heard is None else max(time.monotonic() - heard, 0.0),
            "last_transfer_age_s": None if stats.last_ok_at is None else now - stats.last_ok_at,
            "transfers_ok": stats.ok,
            "transfers_failed": stats.failed,
            "rooms_open": rooms.open_rooms(key) if rooms is not None else 0,
            "stale": entry.stale,
            "error": entry.error,
        }


def _group(
    agents: list[c.AgentInfo], fingerprint: dict[str, str | int], broadcast: Callable[[c.Command], None]
) -> Ranks:
    heads = tuple(agent.heads for agent in agents)
    layers, page_size = int(fingerprint["layers"]), int(fingerprint["page_size"])
    indexed = fingerprint.get("layout") == OPAQUE
    return Ranks(len(agents), broadcast, heads, layers, page_size, indexed)


def _unlinked_row(address: str, error: str) -> dict[str, object]:
    nothing = dict.fromkeys(("instance", "incarnation", "last_heard_age_s", "last_transfer_age_s"))
    zero = dict.fromkeys(("since_age_s", "transfers_ok", "transfers_failed", "rooms_open"), 0)
    return {**nothing, **zero, "address": address, "linked": False, "stale": False, "error": error}
