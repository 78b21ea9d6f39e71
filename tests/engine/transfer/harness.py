"""Engines without a model: a real link, real deadlines, and ranks that are real agents or fakes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch

from engine.core.ids import agent_name, new_incarnation
from engine.core.settings import Settings
from engine.core.types import FirstToken, Shape, split_heads
from engine.faults import Faults
from engine.runner import ModelRunner
from engine.transfer import commands as c
from engine.transfer.agent import AgentThread
from engine.transfer.coordinator import Transfer
from engine.transfer.layout import layout_name
from engine.transfer.ports import Outcome

SHAPE = Shape(layers=3, kv_heads=3, head_dim=4, page_size=2, itemsize=4)
TOKEN = b"a fleet token"


def until(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Poll for a condition; fail naming it when it does not come true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.002)


class Sink:
    """Records what the transfer layer tells the engine, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def ended(self, room: int, rid: str, outcome: Outcome) -> None:
        self.events.append(("ended", room, outcome.kind, outcome.code))

    def quiet(self, room: int, rid: str) -> None:
        self.events.append(("quiet", room))

    def wanted(self, room: int, rid: str) -> None:
        """Scheduling only: no event of a room's life."""

    def ready(self, room: int, rid: str, first: FirstToken) -> None:
        self.events.append(("ready", room, first.token))

    def of(self, room: int) -> list[object]:
        """The names of the room's events; an end by its code or kind."""
        return [(e[3] or e[2]) if e[0] == "ended" else e[0] for e in self.events if e[1] == room]


def fill(pool: torch.Tensor, first_head: int, seed: int) -> None:
    """Give every page and head of the model its own bytes, the same whichever rank holds the head."""
    for page in range(pool.shape[0]):
        for head in range(pool.shape[1]):
            maker = torch.Generator().manual_seed((seed * 1000 + page) * 100 + first_head + head)
            pool[page, head] = torch.randn(pool.shape[2:], generator=maker)


def heads_of(shape: Shape, tp: int, rank: int) -> tuple[int, int]:
    return (0, shape.kv_heads) if shape.replicated else split_heads(shape.kv_heads, tp, rank)


def make_pool(pages: int, tp: int, rank: int, shape: Shape = SHAPE) -> torch.Tensor:
    first, last = heads_of(shape, tp, rank)
    size = (pages, last - first, shape.layers, 2, shape.page_size, shape.head_dim)
    return torch.zeros(size, dtype={4: torch.float32, 2: torch.bfloat16, 1: torch.uint8}[shape.itemsize])


class FakeAgents:
    """Ranks without NIXL: answer at once, or hold Posts back while `hold` is set."""

    def __init__(self, tp: int, pages: int) -> None:
        self.tp, self.hold = tp, False
        self.log: list[c.Command] = []
        self.report: Callable[[c.Report], None] = lambda report: None
        ranges = [split_heads(SHAPE.kv_heads, tp, r) for r in range(tp)]
        self.infos = [
            c.AgentInfo(rank=r, metadata=b"m", base=4096, device=0, heads=h, pages=pages)
            for r, h in enumerate(ranges)
        ]

    def broadcast(self, command: c.Command) -> None:
        self.log.append(command)
        threading.Thread(target=self._answer, args=(command,), daemon=True).start()

    def _answer(self, command: c.Command) -> None:
        for rank in range(self.tp):
            if isinstance(command, c.AddPeer):
                self.report(c.PeerAdded(rank, command.peer, 0.0, command.epoch))
            elif isinstance(command, c.RemovePeer):
                self.report(c.PeerRemoved(rank, command.peer))
            elif isinstance(command, c.Quiesce):
                self.report(c.Quiet(rank, command.room))
            elif isinstance(command, c.Post) and not (command.stall or self.hold):
                self.report(c.Posted(rank=rank, room=command.room, seq=command.seq, bytes=8, seconds=0.0))

    def stop(self) -> None:
        self.report = lambda report: None


class RealAgents:
    """Ranks with real NIXL agents on threads of this process, over their own pools or those of `runners`."""

    def __init__(
        self,
        tp: int,
        pages: int,
        instance: str,
        incarnation: str,
        shape: Shape = SHAPE,
        runners: list[ModelRunner] | None = None,
    ) -> None:
        self.tp = tp
        self.pools = [make_pool(pages, tp, rank, shape) for rank in range(tp)]
        if runners:
            self.pools = [runner.pool for runner in runners]
        self.report: Callable[[c.Report], None] = lambda report: None
        self.reports: list[c.Report] = []
        self.threads = [
            AgentThread(
                name=agent_name(instance, incarnation, rank),
                rank=rank,
                heads=heads_of(shape, tp, rank),
                shape=shape,
                pool=self.pools[rank],
                report=self._report,
                verify=runners[rank].damage if runners else None,
            )
            for rank in range(tp)
        ]
        for thread in self.threads:
            thread.start()
        self.infos = [thread.info for thread in self.threads]

    def _report(self, report: c.Report) -> None:
        self.reports.append(report)
        self.report(report)

    def broadcast(self, command: c.Command) -> None:
        for thread in self.threads:
            thread.submit(command)

    def stop(self) -> None:
        for thread in self.threads:
            thread.stop()


class Engine:
    """One side: ranks and a Transfer, started."""

    def __init__(
        self,
        role: str,
        instance: str,
        *,
        tp: int = 1,
        pages: int = 32,
        real: bool = False,
        shape: Shape = SHAPE,
        env: dict[str, str] | None = None,
        token: bytes = TOKEN,
        fingerprint: dict[str, str | int] | None = None,
        port: int = 0,
        peers: list[str] | None = None,
        legacy: bool = False,
        incarnation: str | None = None,
        runners: list[ModelRunner] | None = None,
    ) -> None:
        if runners:
            tp, real, shape = len(runners), True, runners[0].shape
        self.instance, self.incarnation = instance, incarnation or new_incarnation()
        self.sink, self.faults = Sink(), Faults(enabled=True)
        self.settings = Settings.from_env(env or {})
        self.ranks: RealAgents | FakeAgents
        if real:
            self.ranks = RealAgents(tp, pages, instance, self.incarnation, shape, runners)
        else:
            self.ranks = FakeAgents(tp, pages)
        marks: dict[str, str | int] = {
            "model": "sha256:0",
            "dtype": {4: "float32", 2: "bfloat16", 1: "bytes"}[shape.itemsize],
            "page_size": shape.page_size,
            "layout": layout_name(shape),
            "layers": shape.layers,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "tp": tp,
        }
        self.transfer = Transfer(
            role=role,  # type: ignore[arg-type]
            instance=instance,
            incarnation=self.incarnation,
            fingerprint=marks | (fingerprint or {}),
            agents=self.ranks.infos,
            settings=self.settings,
            token=token,
            ranks=self.ranks.broadcast,
            sink=self.sink,
            bootstrap_port=port if role == "prefill" else None,
            peers=peers or [],
            legacy=legacy,
            faults=self.faults,
        )
        self.ranks.report = self.transfer.on_report
        self.address = f"127.0.0.1:{self.transfer.start()}"

    def linked(self) -> bool:
        return bool(self.transfer.linked())

    def peer(self) -> dict[str, object]:
        (row,) = self.transfer.peers_document()
        return row

    def settle(self) -> None:
        """Until the link's thread has done what it was asked for."""
        done = threading.Event()
        assert self.transfer._link is not None
        self.transfer._link._post(done.set)
        assert done.wait(20.0)

    def stop(self) -> None:
        self.transfer.stop()
        self.ranks.stop()


def linked_pair(make: Callable[..., Engine], **options: object) -> tuple[Engine, Engine]:
    """A prefill and a decode that are linked; options p_… and d_… go to one side."""

    def of(side: str) -> dict[str, object]:
        both = {k: v for k, v in options.items() if k[:2] not in ("p_", "d_")}
        return both | {k[2:]: v for k, v in options.items() if k[:2] == side}

    prefill = make("prefill", "prefill-0", **of("p_"))
    decode = make("decode", "decode-0", peers=[prefill.address], **of("d_"))
    until(lambda: prefill.linked() and decode.linked(), "both sides linked")
    return prefill, decode


def hand_over(prefill: Engine, decode: Engine, room: int, src: list[int], dst: list[int]) -> None:
    """One room from open to computed, in one chunk; does not wait."""
    tokens = len(src) * SHAPE.page_size
    prefill.transfer.open(room, f"p{room}")
    decode.transfer.request(room, f"d{room}", prefill.address)
    decode.transfer.grant(room, dst, tokens)
    prefill.transfer.computed(room, tokens, src, FirstToken(token=7))
