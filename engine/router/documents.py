"""GET /v1/requests: the ledger as a document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engine.router.ledger import Entry, Ledger, Side


def _leg(entry: Entry, side: Side, now: float) -> dict[str, Any] | None:
    leg = entry.legs.get(side)
    if leg is None:
        return None
    return {"engine": leg.engine, "status": leg.status, "age_s": now - leg.since}


def _request(entry: Entry, now: float) -> dict[str, Any]:
    return {
        "id": entry.id,
        "room": entry.room,
        "stage": entry.stage,
        "age_s": now - entry.admitted_at,
        "stage_age_s": now - entry.stage_at,
        "stream": entry.stream,
        "model": entry.model,
        "tokens_out": entry.tokens_out,
        "attempts": entry.attempts,
        "legs": {"prefill": _leg(entry, "prefill", now), "decode": _leg(entry, "decode", now)},
    }


def requests_document(ledger: Ledger, instance: str, now: float, wall: float) -> dict[str, Any]:
    """`now` is the ledger's clock, `wall` Unix seconds."""
    return {
        "schema": 1,
        "instance": instance,
        "now": wall,
        "requests": [_request(entry, now) for entry in ledger.live.values()],
        "recent": [asdict(ended) for ended in ledger.recent],
    }
