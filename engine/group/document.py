"""The leader's part of /v1/state, built under the leader's lock by the publisher thread."""

from __future__ import annotations

from typing import Any

from engine.core.types import Stage
from engine.group.lifecycle import Lifecycle
from engine.schedule.sequence import Sequence

QUEUES: tuple[Stage, ...] = (
    "waiting",
    "prefilling",
    "inflight",
    "preallocated",
    "transferring",
    "ready",
    "running",
)


def requests(life: Lifecycle, rooms: dict[int, dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """One entry per live request; `rooms` is the transfer layer's view by room id."""
    return [_request(seq, _room(seq, rooms), life, now) for seq in life.sequences.values()]


def _room(seq: Sequence, rooms: dict[int, dict[str, Any]]) -> dict[str, Any] | None:
    return None if seq.request.room is None else rooms.get(seq.request.room)


def _request(seq: Sequence, room: dict[str, Any] | None, life: Lifecycle, now: float) -> dict[str, Any]:
    stage, waiting_on = seq.stage, seq.waiting_on
    if room is not None and stage in ("preallocated", "inflight"):
        waiting_on = room.get("waiting_on")
        if stage == "preallocated" and room.get("stage") == "transferring":
            stage = "transferring"
    room = room or {}
    return {
        "id": seq.request.id,
        "room": seq.request.room,
        "stage": stage,
        "age_s": round(now - seq.arrived, 3),
        "stage_age_s": round(now - seq.since, 3),
        "prompt_tokens": len(seq.request.prompt),
        "output_tokens": len(seq.output),
        "computed_tokens": seq.computed,
        "pages": len(life.pages.pages(seq.id)),
        "peer": room.get("peer") or seq.request.peer,
        "peer_incarnation": room.get("incarnation"),
        "waiting_on": waiting_on,
        "bytes": room.get("bytes", 0),
    }


def queues(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Depth and oldest age of each stage, from the request entries so that both always agree."""
    out: dict[str, dict[str, Any]] = {}
    for stage in QUEUES:
        ages = [e["stage_age_s"] for e in entries if e["stage"] == stage]
        out[stage] = {"depth": len(ages), "oldest_age_s": max(ages, default=None)}
    return out


def pages(life: Lifecycle) -> dict[str, Any]:
    p = life.pages
    return {
        "total": p.total,
        "free": p.free,
        "cached": p.cached,
        "held": p.held,
        "quarantined": p.quarantined,
        "page_size": life.scheduler.limits.page_size,
    }
