"""A NIXL write each way between two hosts, by the same agents that move KV, without an engine.

Two ends meet on one TCP connection: a challenge, both introductions with an HMAC over a word that both
were given, then each end in turn writes its pages into the other's pool and the other compares bytes.
Bytes follow from a seed, so neither end trusts what the other says it sent.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import torch

from engine.core.errors import EngineError, Exit
from engine.core.framing import Channel
from engine.core.ids import agent_name, new_incarnation
from engine.core.types import Shape
from engine.transfer import commands as c
from engine.transfer.agent import Agent
from engine.transfer.edge import NIXL_ERRORS, say

# One page is 256 KiB, about what a page of a model of middle size has.
SHAPE = Shape(layers=1, kv_heads=1, head_dim=1024, page_size=128, itemsize=1)
ROUNDS = 4
PAUSE = 0.0005


class ProbeError(EngineError):
    """The path does not carry what it must; the message says where it stopped."""

    exit = Exit.PATH


class Greeting(msgspec.Struct, tag="greeting", frozen=True):
    nonce: bytes


class Introduction(msgspec.Struct, tag="introduction", frozen=True, kw_only=True):
    """`mac` is over both nonces and everything else here."""

    nonce: bytes
    versions: dict[str, str]
    agent: c.AgentInfo
    mac: bytes = b""


class Warm(msgspec.Struct, tag="warm", frozen=True):
    """The sender can write to the receiver."""


class Written(msgspec.Struct, tag="written", frozen=True):
    """The sender's pages are complete in the receiver's pool, `rounds` times over."""

    seconds: float
    rounds: int


class Seen(msgspec.Struct, tag="seen", frozen=True):
    """Whether the receiver has the bytes that it should have."""

    right: bool


class Gone(msgspec.Struct, tag="gone", frozen=True):
    """The connection ended; said by the reader, never sent."""

    why: str


Message = Greeting | Introduction | Warm | Written | Seen
_DECODER = msgspec.msgpack.Decoder(Message)
R = TypeVar("R", bound=c.Report)
M = TypeVar("M", bound=Message)


@dataclass
class Write:
    """One direction. `right` is what the receiving end found."""

    seconds: float
    bytes: int
    right: bool

    @property
    def gb_s(self) -> float:
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


class Probe:
    """One end. `stage` says where it is, for whoever has to end it from outside."""

    def __init__(self, word: bytes, size: int, device: str, versions: dict[str, str]) -> None:
        self.stage = "start the agent"
        self.theirs: dict[str, str] = {}
        self._word, self._versions = word, versions
        self._pages = max(1, size // SHAPE.head_bytes)
        self._reports: list[c.Report] = []
        self._heard: deque[Message | Gone] = deque()
        self._end = 0.0
        # Own pages, then those that the peer writes, then the scratch page.
        shape = (2 * self._pages + 1, 1, SHAPE.layers, 2, SHAPE.page_size, SHAPE.head_dim)
        self._pool = torch.zeros(shape, dtype=torch.uint8, device=device)
        name = agent_name("probe", new_incarnation(), 0)
        try:
            self._agent = Agent(
                name=name, rank=0, heads=(0, 1), shape=SHAPE, pool=self._pool, report=self._reports.append
            )
        except NIXL_ERRORS as error:
            raise ProbeError("probe_transfer", f"NIXL could not {self.stage}: {say(error)}.") from error

    def run(self, sock: socket.socket, first: bool, end: float) -> tuple[Write, Write]:
        """(to the peer, from the peer). `first` writes first; `end` is on the monotonic clock.

        ProbeError naming the stage that failed.
        """
        self._end = end
        self._channel = Channel(sock)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            peer, seeds = self._meet("dial" if first else "listen")
            self._warm(peer)
            self._fill(seeds[0])
            if first:
                out, back = self._write(), self._receive(seeds[1])
            else:
                back, out = self._receive(seeds[1]), self._write()
            self.stage = "part"
            self._agent.execute(c.RemovePeer("peer"))
        except OSError as error:
            raise ProbeError("probe_lost", f"The connection broke: {error}.") from error
        finally:
            self._channel.close()
        return out, back

    def _read(self) -> None:
        try:
            while True:
                self._heard.append(_DECODER.decode(self._channel.receive()))
        except (OSError, msgspec.MsgspecError) as error:
            self._heard.append(Gone(str(error)))

    def _meet(self, side: str) -> tuple[c.AgentInfo, tuple[bytes, bytes]]:
        """The peer's agent, and the seeds of my bytes and of the peer's."""
        self.stage = "meet"
        mine = secrets.token_bytes(16)
        self._channel.send(Greeting(mine))
        theirs = self._next(Greeting).nonce
        me = Introduction(nonce=mine, versions=self._versions, agent=self._agent.info())
        self._channel.send(msgspec.structs.replace(me, mac=self._mac(me, side, theirs)))
        other = self._next(Introduction)
        expected = self._mac(
            msgspec.structs.replace(other, mac=b""), "listen" if side == "dial" else "dial", mine
        )
        if other.nonce != theirs or not hmac.compare_digest(other.mac, expected):
            raise ProbeError("probe_stranger", "The other end was not given the same word.")
        if other.agent.pages != self._pool.shape[0]:
            raise ProbeError("probe_sizes", "The two ends were started with different --bytes.")
        self.theirs = other.versions
        return other.agent, (mine + theirs, theirs + mine)

    def _mac(self, intro: Introduction, side: str, nonce: bytes) -> bytes:
        return hmac.digest(self._word, side.encode() + nonce + msgspec.msgpack.encode(intro), "sha256")

    def _warm(self, peer: c.AgentInfo) -> None:
        self.stage = "wire up"
        self._agent.execute(
            c.AddPeer(
                peer="peer",
                tp=1,
                metadata=[peer.metadata],
                bases=[peer.base],
                devices=[peer.device],
                heads=[peer.heads],
                pages=peer.pages,
                memory=peer.memory,
                deadline=max(0.1, self._end - time.monotonic()),
            )
        )
        self._report(c.PeerAdded)
        self._channel.send(Warm())
        self._next(Warm)

    def _bytes(self, seed: bytes) -> torch.Tensor:
        raw = bytearray(hashlib.shake_256(seed).digest(self._pages * SHAPE.head_bytes))
        return torch.frombuffer(raw, dtype=torch.uint8).view(self._pages, *self._pool.shape[1:])

    def _fill(self, seed: bytes) -> None:
        self._pool[: self._pages].copy_(self._bytes(seed))
        if self._pool.is_cuda:
            torch.cuda.synchronize()

    def _write(self) -> Write:
        self.stage = "write to the peer"
        pages = list(range(self._pages))
        begin = time.monotonic()
        for seq in range(ROUNDS):
            there = [self._pages + page for page in pages]
            self._agent.execute(c.Post(room=1, seq=seq, peer="peer", src=pages, dst=there))
            self._report(c.Posted)
        seconds = time.monotonic() - begin
        self._channel.send(Written(seconds, ROUNDS))
        right = self._next(Seen).right
        return Write(seconds, ROUNDS * self._pages * SHAPE.head_bytes, right)

    def _receive(self, seed: bytes) -> Write:
        self.stage = "be written to by the peer"
        done = self._next(Written)
        arrived = self._pool[self._pages : 2 * self._pages].cpu()
        right = torch.equal(arrived, self._bytes(seed))
        self._channel.send(Seen(right))
        return Write(done.seconds, done.rounds * self._pages * SHAPE.head_bytes, right)

    def _turn(self) -> None:
        """A write over TCP goes on only while both ends poll."""
        if time.monotonic() > self._end:
            raise ProbeError("probe_deadline", f"Out of time: it was to {self.stage}.")
        if not self._agent.turn():
            time.sleep(PAUSE)

    def _report(self, kind: type[R]) -> R:
        while not self._reports:
            self._turn()
            if self._heard and isinstance(self._heard[-1], Gone):
                raise self._lost(self._heard[-1])
        report = self._reports.pop(0)
        if isinstance(report, c.PeerError | c.PostError):
            raise ProbeError("probe_transfer", f"NIXL could not {self.stage}: {report.error}.")
        if not isinstance(report, kind):
            raise ProbeError("probe_transfer", f"NIXL reported {type(report).__name__}, not {kind.__name__}.")
        return report

    def _next(self, kind: type[M]) -> M:
        while not self._heard:
            self._turn()
        message = self._heard.popleft()
        if not isinstance(message, kind):
            raise self._lost(message)
        return message

    def _lost(self, message: Message | Gone) -> ProbeError:
        why = message.why if isinstance(message, Gone) else f"it said {type(message).__name__}"
        return ProbeError("probe_lost", f"The other end left while this one was to {self.stage}: {why}.")
