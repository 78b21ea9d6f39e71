"""What the pages are made of, and the JSON documents that they ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdctl.adapters.picture import Leg, RouterLeg, RouterRequest
from pdctl.errors import PdctlError
from pdctl.supervisor.incidents import Action, Incident, Incidents
from pdctl.supervisor.live import Live
from pdctl.supervisor.observation import EngineLook, HostLook, Observation, RouterLook, requests_waiting
from pdctl.supervisor.series import Series

REQUESTS = 60  # of the ledger, the oldest
PINNED = 5  # of one engine's requests, the oldest
COLUMNS = ("up", "waiting", "inflight", "running", "oldest", "prefill_rate", "decode_rate", "kv", "failed")
NAMES = 16  # subjects whose series one question may ask for
LONGEST = 31 * 86400.0


@dataclass(frozen=True)
class Sources:
    """`file` is the supervisor's SQLite file; `evidence` makes a kept bundle an HTML document."""

    live: Live
    file: Path
    fleet: str
    evidence: Callable[[Path], str] | None = None

    def now(self) -> dict[str, Any]:
        """The newest look and what the supervisor does; the document of GET /api/now."""
        look, standing = self.live.look, self.live.standing
        return {
            "schema": 1,
            "fleet": self.fleet,
            "version": self.live.version,
            "now": round(time.time(), 3),
            "at": look.at if look else None,
            "seconds": round(look.seconds, 3) if look else None,
            "age_s": round(self.live.age, 1),
            "unwell": self.live.unwell,
            "troubles": list(self.live.troubles.values()),
            "supervisor": asdict(standing),
            "cells": _cells(look, standing.cells) if look else [],
            "router": _router(look.router, _where(look)) if look and look.router else None,
            "hosts": [_host(host, look.monotonic) for host in look.hosts] if look else [],
        }

    def history(self, kind: str, names: Sequence[str], seconds: float) -> dict[str, Any]:
        """Series of the last `seconds`; the document of GET /api/history. An empty `names` is every one."""
        end = time.time()
        begin = end - min(max(seconds, 60.0), LONGEST)
        series = Series(self.file)
        asked = list(names) or series.subjects(kind)
        return {
            "schema": 1,
            "kind": kind,
            "begin": round(begin, 3),
            "end": round(end, 3),
            "columns": COLUMNS,
            "series": series.read(kind, asked[:NAMES], COLUMNS, begin, end),
            "left_out": asked[NAMES:],
            "lives": [asdict(life) for life in series.lives(begin, end)],
        }

    def incidents(self, last: int) -> dict[str, Any]:
        """The document of GET /api/incidents: open ones first, newest first; and the newest actions."""
        book = Incidents(self.file, read_only=True)
        try:
            return {
                "schema": 1,
                "incidents": [self._incident(each) for each in book.recent(last)],
                "actions": [asdict(action) for action in book.actions(last=last)],
            }
        finally:
            book.close_file()

    def counts(self) -> tuple[int, Mapping[tuple[str, str], int]]:
        """Incidents that are open, and actions by (action, outcome) of those that are kept."""
        try:
            book = Incidents(self.file, read_only=True)
            try:
                actions: list[Action] = book.actions(last=10_000)
                found: list[Incident] = book.recent(1000, open_only=True)
            finally:
                book.close_file()
        except PdctlError:
            return 0, {}
        done: dict[tuple[str, str], int] = {}
        for each in actions:
            done[each.action, each.outcome] = done.get((each.action, each.outcome), 0) + 1
        return len(found), done

    def bundle(self, incident: int) -> Path | None:
        """The kept bundle of one incident; None when there is none any more."""
        book = Incidents(self.file, read_only=True)
        try:
            found = book.one(incident)
        finally:
            book.close_file()
        path = Path(found.evidence) if found and found.evidence else None
        return path if path and path.exists() else None

    def _incident(self, incident: Incident) -> dict[str, Any]:
        there = bool(incident.evidence) and Path(incident.evidence).exists()
        return {**incident.document(), "readable": bool(self.evidence and there)}


def _cells(look: Observation, states: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "state": states.get(name, ""),
            "waiting": requests_waiting(engines),
            "engines": [_engine(e) for e in engines],
        }
        for name, engines in look.cells().items()
    ]


def _engine(e: EngineLook) -> dict[str, Any]:
    pages, oldest = e.pages, sorted(e.legs, key=lambda leg: -leg.stage_age)[:PINNED]
    return {
        "name": e.name,
        "role": e.role,
        "host": e.host,
        "kind": e.kind,
        "answers": e.answered,
        "ready": e.ready,
        "status": e.status,
        "why": e.detail or ("" if e.ready else ", ".join(e.not_ready)),
        "incarnation": e.incarnation,
        "started_at": e.started_at,
        "release": e.release,
        "queues": {name: [q.depth, q.oldest_age] for name, q in e.queues.items()},
        "waiting": e.waiting,
        "oldest_s": e.oldest,
        "pages": None if pages is None else [pages.free, pages.held, pages.quarantined, pages.total],
        "links": [[p.instance or p.address, p.linked and not p.stale, p.error or ""] for p in e.peers],
        "oldest": [_leg(leg) for leg in oldest],
        "failed": dict(e.failed),
        "fired": dict(e.fired),
    }


def _leg(leg: Leg) -> dict[str, Any]:
    return {
        "id": leg.id,
        "room": leg.room,
        "stage": leg.stage,
        "age_s": leg.age,
        "stage_age_s": leg.stage_age,
        "waits_on": leg.waiting_on or "",
    }


Where = Mapping[str, Sequence[tuple[str, Leg]]]


def _where(look: Observation) -> Where:
    """Request -> the engines that hold it."""
    found: dict[str, list[tuple[str, Leg]]] = {}
    for engine in look.engines:
        for leg in engine.legs:
            found.setdefault(leg.id, []).append((engine.name, leg))
    return found


def _router(r: RouterLook, where: Where) -> dict[str, Any]:
    return {
        "name": r.name,
        "kind": r.kind,
        "answers": r.answered,
        "why": r.detail,
        "admission": r.admission,
        "held": r.held,
        "hold_age_s": r.hold_age,
        "size": r.size,
        "oldest_s": r.oldest,
        "engines": [[e.instance, e.ready, e.cordoned, e.active, e.error or ""] for e in r.engines],
        "requests": [_request(q, where.get(q.id, ())) for q in r.requests[:REQUESTS]],
    }


def _request(q: RouterRequest, held: Sequence[tuple[str, Leg]]) -> dict[str, Any]:
    """One line of the ledger: what the router counts, and where engines have it."""
    at = dict(held)

    def side(leg: RouterLeg | None) -> dict[str, Any] | None:
        if leg is None:
            return None
        mine = at.get(leg.engine)
        return {"engine": leg.engine, "status": leg.status, "leg": None if mine is None else _leg(mine)}

    return {
        "id": q.id,
        "room": q.room,
        "stage": q.stage,
        "age_s": q.age,
        "stage_age_s": q.stage_age,
        "tokens": q.tokens_out,
        "prefill": side(q.prefill),
        "decode": side(q.decode),
    }


def _host(host: HostLook, now: float) -> dict[str, Any]:
    return {
        "name": host.name,
        "reachable": host.reachable,
        "why": host.detail,
        "age_s": round(max(0.0, now - host.monotonic), 1),
        "units": {name: [u.state, u.reason, u.restarts] for name, u in host.units.items()},
    }
