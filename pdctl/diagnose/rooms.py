"""Hand-overs that failed, from whichever engine's log, told apart by what they say; pure.

A line that only repeats what somebody else decided (an abort, "another rank") is an echo: it never names a
cause. A timeout names its timer and with it the side that waited. Everything else is an error of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pdctl.adapters.traces import Event
from pdctl.diagnose.facts import Facts

SIGNS = (
    "sglang.room_failed",
    "sglang.worker_error",
    "sglang.lost_prefill",
    "sglang.session_dead",
    "vllm.transfer_failed",
    "room.kv_failed",
    "nixl.remote_disconnect",
    "peer.modify_failed",
    "trtllm.context_wait",
    "vllm.kv_expired",
)


class Kind(StrEnum):
    ECHO = "echo"
    ABORT = "abort"
    TIMEOUT = "timeout"
    LOST_PEER = "lost peer"
    OWN = "own"


_ECHO = re.compile(r"from another rank|is_from_another_rank=True|flushed error|Flushed")
_ABORT = re.compile(r"AbortReq|decode-side abort|client disconnect|[Aa]borted by (?:client|user)|ABORTED")
_TIMEOUT = re.compile(r"[Tt]imed out (?:after|waiting)|[Tt]imeout(?:Error)?\b.{0,40}\d")
_SECONDS = re.compile(r"after (?P<n>\d+(?:\.\d+)?) ?(?P<unit>ms|milliseconds|s\b|sec)?")
_STATE = re.compile(r"KVPoll\.(?P<state>\w+)")
_ROOM = re.compile(r"bootstrap_room\W{1,3}(?P<a>\d+)|\b[Rr]oom\W{1,3}(?P<b>\d+)|Request (?P<c>\d{3,})\b")
_LOST = re.compile(
    r"REMOTE_DISCONNECT|RemoteDisconnect|Lost connection|is not alive|status -80|Endpoint timeout|"
    r"engine ID mismatch|Remote I/O error|[Cc]onnection re(?:set|fused)|could be dead|NOT_FOUND|"
    r"unknown agent|not registered"
)
_REMOTE = re.compile(
    r"(?:remote_engine_id|remote_agent|remote[_ ]session|session|bootstrap_addr|remote agent|peer|instance"
    r"(?: \(bootstrap_addr:)?)['\"]?\s*[:=(]?\s*['\"]?(?P<remote>[\w.-]*[\d.-][\w.:-]*)"
)


@dataclass(frozen=True)
class Failure:
    """One failed hand-over. `seconds` is the timer's value where the line says it, `state` what it waited in.

    `began` is when the wait began: the line's time without the timer.
    """

    event: Event
    kind: Kind
    room: str
    seconds: float | None
    state: str
    remote: str

    @property
    def party(self) -> str:
        return self.event.party

    @property
    def at(self) -> float | None:
        return self.event.at

    @property
    def began(self) -> float | None:
        return None if self.at is None else self.at - (self.seconds or 0.0)


def _kind(line: str) -> Kind:
    for kind, pattern in (
        (Kind.ECHO, _ECHO),
        (Kind.ABORT, _ABORT),
        (Kind.LOST_PEER, _LOST),
        (Kind.TIMEOUT, _TIMEOUT),
    ):
        if pattern.search(line):
            return kind
    return Kind.OWN


def _seconds(line: str) -> float | None:
    found = _SECONDS.search(line)
    if found is None:
        return None
    return float(found["n"]) / (1000 if (found["unit"] or "").startswith("m") else 1)


def failure(event: Event) -> Failure:
    line = event.line
    expired = event.sign == "vllm.kv_expired"
    kind = Kind.TIMEOUT if expired else _kind(line)
    told = event.values.get("seconds")
    room = _ROOM.search(line)
    remote = event.values.get("remote") or ((m := _REMOTE.search(line)) and m["remote"]) or ""
    state = _STATE.search(line)
    return Failure(
        event,
        kind,
        next((g for g in room.groups() if g), "") if room else event.values.get("room", ""),
        float(told) if told else _seconds(line) if kind is Kind.TIMEOUT else None,
        state["state"] if state else "",
        remote.strip("().,:'\""),
    )


def failures(facts: Facts, *parties: str) -> list[Failure]:
    """Failed hand-overs in the logs of `parties` (all of them when none is named), oldest first."""
    found: dict[str, Failure] = {}
    for event in facts.events(*SIGNS):
        if not parties or event.party in parties:
            found.setdefault(event.where, failure(event))
    return list(found.values())


def of_kind(found: Iterable[Failure], *kinds: Kind) -> list[Failure]:
    return [f for f in found if f.kind in kinds]


def echoes_only(found: Sequence[Failure]) -> bool:
    return bool(found) and all(f.kind in (Kind.ECHO, Kind.ABORT) for f in found)
