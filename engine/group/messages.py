"""What the processes of one group say to each other, as tagged msgpack over socketpairs.

Control channel: parent ↔ every rank. Work channel: leader (rank 0) ↔ every other rank.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.core.types import Batch, Logprob, Request, Role
from engine.transfer.commands import AgentInfo, Command, Report


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a rank must know. Secrets travel here, over the socketpair, never in argv."""

    instance: str
    role: Role
    incarnation: str
    model: str
    host: str
    port: int
    bootstrap_port: int | None = None
    advertise: str
    peers: tuple[str, ...] = ()  # addresses
    peer_names: dict[str, str] = {}  # address -> what to call it while it has not said its name
    cell: str = ""
    tp: int = 1
    dtype: str = "float32"
    device: str = "cpu"
    page_size: int = 16
    pages: int = 1024
    max_running: int = 16
    token_budget: int = 512
    legacy_bootstrap: bool = False
    drill: bool = False
    token: bytes = b""
    store: str = ""


# parent → rank -----------------------------------------------------------------------------------------


class Start(msgspec.Struct, tag="start", frozen=True):
    config: EngineConfig
    rank: int


class Submit(msgspec.Struct, tag="submit", frozen=True):
    request: Request


class Abort(msgspec.Struct, tag="abort", frozen=True, kw_only=True):
    """By id or by room. `finish` "stop" ends it as a success (a stop string was met)."""

    id: str = ""
    room: int | None = None
    by: str = "client"


class Admin(msgspec.Struct, tag="admin", frozen=True):
    seq: int
    verb: str
    args: dict[str, Any]


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Let go of everything and exit 0."""


class ParentBeat(msgspec.Struct, tag="parent_beat", frozen=True):
    """Sent about twice a second by the parent's event loop to every rank."""


ToRank = Start | Submit | Abort | Admin | Stop | ParentBeat


# rank → parent -----------------------------------------------------------------------------------------


class Up(msgspec.Struct, tag="up", frozen=True, kw_only=True):
    """The leader: all ranks are loaded and the engine can take requests."""

    fingerprint: dict[str, Any]
    max_model_len: int
    eos: tuple[int, ...]
    load_seconds: float
    versions: dict[str, str]


class Fatal(msgspec.Struct, tag="fatal", frozen=True, kw_only=True):
    """A rank cannot go on. The parent prints `message`, a sentence that clients may read too.

    `effect`: its dealings with another rank broke, so the cause may be that rank's death.
    """

    rank: int
    exit: int
    message: str
    effect: bool = False


class RankBeat(msgspec.Struct, tag="rank_beat", frozen=True):
    """Sent about twice a second by a thread of its own in every rank."""

    rank: int
    pid: int


class Out(msgspec.Struct, tag="out", frozen=True, kw_only=True):
    """Tokens or the end of one request. `code` set means it failed.

    `logprobs` has one entry a token where the request asks for them, else none.
    """

    id: str
    tokens: list[int] = []
    logprobs: list[Logprob] = []
    finish: str | None = None
    code: str | None = None
    message: str = ""


class Snapshot(msgspec.Struct, tag="snapshot", frozen=True):
    """The leader's part of /v1/state, published on a timer."""

    document: dict[str, Any]


class AdminReply(msgspec.Struct, tag="admin_reply", frozen=True, kw_only=True):
    seq: int
    document: dict[str, Any] = {}
    code: str | None = None
    message: str = ""
    status: int = 500  # HTTP, of a code


ToParent = Up | Fatal | RankBeat | Out | Snapshot | AdminReply


# leader ↔ worker ---------------------------------------------------------------------------------------


class RankUp(msgspec.Struct, tag="rank_up", frozen=True):
    """A worker has loaded its shard; how a peer writes into its pool."""

    agent: AgentInfo


class Step(msgspec.Struct, tag="step", frozen=True):
    batch: Batch


class Relay(msgspec.Struct, tag="relay", frozen=True):
    """A transfer command for the worker's transfer thread."""

    command: Command


class Reported(msgspec.Struct, tag="reported", frozen=True):
    report: Report


ToWorker = Step | Relay | Stop
ToLeader = RankUp | Reported
