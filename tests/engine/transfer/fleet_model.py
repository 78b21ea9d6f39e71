"""An in-memory prefill and decode for the state machine test: real Sender and Receiver, virtual clock,
a wire that loses connections with what they carry, ranks that track every open write, page owners."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.settings import Settings
from engine.core.types import FirstToken
from engine.faults import Faults
from engine.transfer import commands as c
from engine.transfer import messages as m
from engine.transfer.deadlines import Deadlines
from engine.transfer.handshake import PeerKey
from engine.transfer.ports import Outcome, Ranks
from engine.transfer.receiver import Receiver
from engine.transfer.sender import Sender

PAGES, PAGES_EACH, TOKENS, ADDRESS = 24, 3, 6, "p:1"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Pages:
    """free -> held -> quarantined -> free, as an engine drives it from the sink's calls."""

    def __init__(self) -> None:
        self.free = set(range(PAGES - 1))  # the last page is scratch
        self.held: dict[str, list[int]] = {}
        self.given: dict[str, list[int]] = {}  # what each request got, for good

    def take(self, rid: str) -> list[int] | None:
        if len(self.free) < PAGES_EACH:
            return None
        self.held[rid] = self.given[rid] = sorted(self.free)[:PAGES_EACH]  # what was freed comes back soon
        self.free -= set(self.held[rid])
        return self.held[rid]

    def give_back(self, rid: str) -> None:
        self.free |= set(self.held.pop(rid, []))


class Sink:
    """Checks the contract of the calls; gives pages back at `quiet`."""

    def __init__(self) -> None:
        self.pages = Pages()
        self.ends: dict[str, Outcome] = {}
        self.quiets: set[str] = set()
        self.readies: set[str] = set()

    def ended(self, room: int, rid: str, outcome: Outcome) -> None:
        assert rid not in self.ends, f"{rid} ended twice"
        assert "NIXL" not in outcome.message, "a library's words reach a client"
        self.ends[rid] = outcome

    def quiet(self, room: int, rid: str) -> None:
        assert rid in self.ends, f"{rid} quiet before its end"
        assert rid not in self.quiets, f"{rid} quiet twice"
        self.quiets.add(rid)
        self.pages.give_back(rid)

    def wanted(self, room: int, rid: str) -> None:
        assert rid not in self.ends, f"{rid} wanted after its end"

    def ready(self, room: int, rid: str, first: FirstToken) -> None:
        assert self.ends[rid].kind == "done" and rid in self.quiets and rid not in self.readies
        self.readies.add(rid)


@dataclass
class Rank:
    """Executes commands in order; a posted write stays open until the test completes or breaks it."""

    commands: deque[c.Command] = field(default_factory=deque)
    open: dict[tuple[int, int], c.Post] = field(default_factory=dict)
    held: dict[tuple[int, int], c.Post] = field(default_factory=dict)
    quiescing: set[int] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    reports: deque[c.Report] = field(default_factory=deque)
    wrote: Callable[[c.Post], None] = lambda post: None

    def step(self, index: int) -> None:
        command = self.commands.popleft()
        match command:
            case c.Post() if command.peer in self.removed:
                self.fail(index, command)
            case c.Post():
                (self.held if command.stall else self.open)[command.room, command.seq] = command
            case c.Quiesce():
                self.held = {k: p for k, p in self.held.items() if k[0] != command.room}
                self.quiescing.add(command.room)
            case c.RemovePeer():
                self.removed.add(command.peer)
                gone = [p for p in (*self.open.values(), *self.held.values()) if p.peer == command.peer]
                self.open = {k: p for k, p in self.open.items() if p.peer != command.peer}
                self.held = {k: p for k, p in self.held.items() if p.peer != command.peer}
                for post in gone:
                    self.fail(index, post)
            case c.AddPeer():
                self.removed.discard(command.peer)
        self.settle(index)

    def fail(self, index: int, post: c.Post) -> None:
        self.reports.append(
            c.PostError(rank=index, room=post.room, seq=post.seq, error="nixlError: NIXL_ERR")
        )

    def finish(self, index: int, key: tuple[int, int], good: bool) -> None:
        post = self.open.pop(key)
        if good:
            self.wrote(post)
            done = c.Posted(rank=index, room=post.room, seq=post.seq, bytes=8, seconds=0.0)
            self.reports.append(done)
        else:
            self.fail(index, post)
        self.settle(index)

    def settle(self, index: int) -> None:
        still = {room for room, _ in (*self.open, *self.held)}
        for room in sorted(self.quiescing - still):
            self.quiescing.discard(room)
            self.reports.append(c.Quiet(index, room))


class Prefill:
    """One life of the prefill."""

    def __init__(self, fleet: Fleet, number: int, tp: int = 2) -> None:
        self.key = PeerKey("prefill", f"p{number}")
        self.sink, self.deadlines = Sink(), Deadlines(fleet.clock)
        self.ranks = [Rank(wrote=lambda post: fleet.wrote(self.key, post)) for _ in range(tp)]
        self.up: PeerKey | None = None
        self.computed: set[str] = set()
        self.rids: dict[int, str] = {}
        self.sender = Sender(
            ranks=Ranks(tp, lambda command: [r.commands.append(command) for r in self.ranks]),
            link=_Link(lambda peer, message: fleet.to_decode.append(message) if self.up == peer else None),
            deadlines=self.deadlines,
            sink=self.sink,
            settings=fleet.settings,
            clock=fleet.clock,
            faults=fleet.faults,
        )


class Decode:
    """One life of the decode."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.key = PeerKey("decode", f"d{number}")
        self.sink, self.deadlines = Sink(), Deadlines(fleet.clock)
        self.up: PeerKey | None = None
        self.rids: dict[int, str] = {}
        self.granted: set[str] = set()
        self.checked: set[str] = set()  # readies whose pages were compared; they may be reused since
        self.memory: dict[int, tuple[PeerKey, int]] = {}  # page → whose page was written there last
        self.receiver = Receiver(
            ranks=Ranks(1, lambda command: None),
            link=_Link(lambda peer, message: fleet.to_prefill.append(message) if self.up == peer else None),
            deadlines=self.deadlines,
            sink=self.sink,
            settings=fleet.settings,
            clock=fleet.clock,
            faults=fleet.faults,
        )


class _Link:
    def __init__(self, send: object) -> None:
        self.send = send

    def demand(self, address: str) -> None:
        pass


class Fleet:
    """Both sides and the wire. A connection is up on each side until that side notices its loss."""

    def __init__(self, tp: int = 2) -> None:
        self.tp = tp
        self.clock, self.faults, self.settings = Clock(), Faults(enabled=True), Settings.from_env({})
        self.to_prefill: deque[m.RoomMessage] = deque()
        self.to_decode: deque[m.RoomMessage] = deque()
        self.lives = 0
        self.prefill, self.decode = Prefill(self, 0, tp), Decode(self, 0)

    def connect(self) -> None:
        """Both sides have given the old connection up; a new one is linked."""
        self.lose_prefill("replaced")
        self.lose_decode("replaced")
        self.to_prefill.clear()
        self.to_decode.clear()
        for rank in self.prefill.ranks:
            name = str(self.decode.key)
            if name in rank.removed:
                rank.commands.append(
                    c.AddPeer(peer=name, tp=1, metadata=[], bases=[], devices=[], heads=[], pages=PAGES)
                )
        self.prefill.up, self.decode.up = self.decode.key, self.prefill.key
        self.prefill.sender.on_peer_up(self.decode.key, PAGES)
        self.decode.receiver.on_peer_up(self.prefill.key, ADDRESS)

    def lose_prefill(self, reason: str) -> None:
        """The prefill's side notices; what was under way to it is lost."""
        if self.prefill.up is not None:
            peer, self.prefill.up = self.prefill.up, None
            self.to_prefill.clear()
            self.prefill.sender.on_peer_lost(peer, reason)

    def lose_decode(self, reason: str) -> None:
        if self.decode.up is not None:
            peer, self.decode.up = self.decode.up, None
            self.to_decode.clear()
            self.decode.receiver.on_peer_lost(peer, reason)

    def remove_decode(self) -> None:
        for rank in self.prefill.ranks:
            rank.commands.append(c.RemovePeer(str(self.decode.key)))

    def restart_decode(self) -> None:
        """A new life says Hello: the prefill fences the old one."""
        self.lose_prefill("restarted")
        self.remove_decode()
        self.lives += 1
        self.to_prefill.clear()
        self.decode = Decode(self, self.lives)

    def restart_prefill(self) -> None:
        """The process and its open writes are gone; decode learns it from the next life's Welcome."""
        old = self.prefill.key
        self.lives += 1
        self.prefill = Prefill(self, self.lives, self.tp)
        self.lose_decode("restarted")
        self.decode.receiver.on_peer_fenced(old)

    def wrote(self, source: PeerKey, post: c.Post) -> None:
        if post.peer == str(self.decode.key):
            self.decode.memory |= {dst: (source, src) for src, dst in zip(post.src, post.dst, strict=True)}

    def deliver(self, to_decode: bool) -> None:
        if to_decode and self.to_decode and self.decode.up is not None:
            self.decode.receiver.on_message(self.decode.up, self.to_decode.popleft())
        elif not to_decode and self.to_prefill and self.prefill.up is not None:
            self.prefill.sender.on_message(self.prefill.up, self.to_prefill.popleft())

    def report(self, index: int) -> None:
        if self.prefill.ranks[index].reports:
            self.prefill.sender.on_report(self.prefill.ranks[index].reports.popleft())

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        self.prefill.deadlines.run_due()
        self.decode.deadlines.run_due()

    def drain(self) -> None:
        """Let everything that can happen happen: commands, writes, reports, messages."""
        for _ in range(2000):
            idle = True
            for index, rank in enumerate(self.prefill.ranks):
                while rank.commands:
                    rank.step(index)
                    idle = False
                for key in list(rank.open):
                    rank.finish(index, key, good=True)
                while rank.reports:
                    self.report(index)
                    idle = False
            if (self.to_decode and self.decode.up) or (self.to_prefill and self.prefill.up):
                self.deliver(to_decode=bool(self.to_decode and self.decode.up))
                idle = False
            if idle:
                return
        raise AssertionError("the fleet does not come to rest")
