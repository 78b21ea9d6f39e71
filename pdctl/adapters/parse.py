"""The bundled engine's and router's JSON documents to the normalised picture; pure.

KeyError, TypeError or ValueError when a document is not what pdctl/contracts says.
"""

from __future__ import annotations

from typing import Any

from pdctl.adapters import picture as p
from pdctl.facts.missing import Missing

Document = dict[str, Any]
# What only the leader knows, before it is up.
_LOADING = Missing("the model is loading")


def timeouts(document: Document) -> dict[str, p.Timeout]:
    return {
        name: p.Timeout(name, float(t["value"]), t["env"], t["source"], bool(t["live"]))
        for name, t in document.items()
    }


def _leg(r: Document) -> p.Leg:
    return p.Leg(
        id=r["id"],
        room=r["room"],
        stage=r["stage"],
        age=float(r["age_s"]),
        stage_age=float(r["stage_age_s"]),
        prompt_tokens=r["prompt_tokens"],
        output_tokens=r["output_tokens"],
        pages=r["pages"],
        peer=r["peer"],
        peer_incarnation=r["peer_incarnation"],
        waiting_on=r["waiting_on"],
        bytes=r["bytes"],
    )


def _peer(r: Document) -> p.Peer:
    return p.Peer(
        instance=r["instance"],
        incarnation=r["incarnation"],
        address=r["address"],
        linked=r["linked"],
        since_age=r["since_age_s"],
        last_heard_age=r["last_heard_age_s"],
        last_transfer_age=r["last_transfer_age_s"],
        transfers_ok=r["transfers_ok"],
        transfers_failed=r["transfers_failed"],
        rooms_open=r["rooms_open"],
        stale=r["stale"],
        error=r["error"],
    )


def _progress(r: Document) -> p.Progress | Missing:
    if r["loop_age_s"] is None:
        return _LOADING
    return p.Progress(
        steps=r["steps"],
        last_step_age=r["last_step_age_s"],
        stepping=r["stepping_s"],
        loop_age=float(r["loop_age_s"]),
        tokens_generated=r["tokens_generated"],
        tokens_prefilled=r["tokens_prefilled"],
    )


def _pages(r: Document) -> p.Pages | Missing:
    if not r["total"]:
        return _LOADING
    return p.Pages(
        total=r["total"],
        free=r["free"],
        held=r["held"],
        quarantined=r["quarantined"],
        page_size=r["page_size"],
        quarantined_age=r.get("quarantined_age_s"),
    )


def _counters(r: Document) -> p.Counters | Missing:
    if not r:
        return _LOADING
    return p.Counters(
        deadlines_fired=dict(r["deadlines_fired"]),
        requests_failed=dict(r["requests_failed"]),
        transfers_ok=r["transfers_ok"],
        transfers_failed=r["transfers_failed"],
        transfer_bytes=r["transfer_bytes"],
        transfer_seconds=r["transfer_seconds"],
    )


def _dwell(r: Document) -> p.Dwell:
    return p.Dwell(r["total"], tuple((float(at), float(s), how) for at, s, how in r["recent"]))


def engine(d: Document) -> p.Engine:
    """GET /v1/state of an engine."""
    return p.Engine(
        kind="bundled",
        instance=d["instance"],
        role=d["role"],
        cell=d["cell"],
        incarnation=d["incarnation"],
        pid=d["pid"],
        started_at=float(d["started_at"]),
        now=float(d["now"]),
        address=d["address"],
        bootstrap=d["bootstrap"],
        ready=d["ready"],
        not_ready=tuple(d["not_ready"]),
        status=d["status"],
        snapshot_age=_LOADING if d["snapshot_age_s"] is None else float(d["snapshot_age_s"]),
        progress=_progress(d["progress"]),
        queues={name: p.Queue(q["depth"], q["oldest_age_s"]) for name, q in d["queues"].items()},
        legs=tuple(map(_leg, d["requests"])),
        peers=tuple(map(_peer, d["peers"])),
        pages=_pages(d["pages"]),
        timeouts=timeouts(d["timeouts"]),
        counters=_counters(d["counters"]),
        dwell=_dwell(d["dwell"]),
        armed=tuple(p.Armed(f["name"], f["count"], f["value"], f["hits"]) for f in d["faults"]["armed"]),
        drill=d["drill_enabled"],
        legacy_bootstrap=d["legacy_bootstrap"],
        fingerprint={name: str(value) for name, value in d["fingerprint"].items()},
        versions={name: str(value) for name, value in d["versions"].items()},
        environ=dict(d["environ"]),
        ranks=tuple(p.Rank(r["rank"], r["pid"], r["heartbeat_age_s"]) for r in d["ranks"]),
    )


def _router_leg(leg: Document | None) -> p.RouterLeg | None:
    return None if leg is None else p.RouterLeg(leg["engine"], leg["status"], float(leg["age_s"]))


def router_requests(d: Document) -> tuple[p.RouterRequest, ...]:
    """GET /v1/requests of the router."""
    return tuple(
        p.RouterRequest(
            id=r["id"],
            room=r["room"],
            stage=r["stage"],
            age=float(r["age_s"]),
            stage_age=float(r["stage_age_s"]),
            tokens_out=r["tokens_out"],
            prefill=_router_leg(r["legs"]["prefill"]),
            decode=_router_leg(r["legs"]["decode"]),
        )
        for r in d["requests"]
    )


def router_ended(d: Document) -> tuple[p.Ended, ...]:
    """What the router remembers of requests that are over."""
    return tuple(
        p.Ended(r["id"], r["room"], r["ended"], r["code"] or "", float(r["seconds"]), float(r["ended_at"]))
        for r in d["recent"]
    )


def _router_engine(e: Document) -> p.RouterEngine:
    return p.RouterEngine(
        instance=e["instance"],
        role=e["role"],
        cell=e["cell"],
        url=e["url"],
        ready=e["ready"],
        cordoned=e["cordoned"],
        last_ok_age=e["last_ok_age_s"],
        error=e["error"],
        incarnation=e["incarnation"],
        active=e["active"],
    )


def router(d: Document, requests: Document | None, why_no_requests: str = "") -> p.Router:
    """GET /v1/state of the router, with GET /v1/requests where that answered."""
    return p.Router(
        kind="bundled",
        instance=d["instance"],
        incarnation=d["incarnation"],
        pid=d["pid"],
        started_at=float(d["started_at"]),
        now=float(d["now"]),
        address=d["address"],
        admission=d["admission"],
        held=d["held"],
        hold_age=d["hold_age_s"],
        engines=tuple(map(_router_engine, d["engines"])),
        timeouts=timeouts(d["timeouts"]),
        requests_failed=dict(d["counters"]["requests_failed"]),
        environ=dict(d["environ"]),
        requests=Missing(why_no_requests) if requests is None else router_requests(requests),
        ended=() if requests is None else router_ended(requests),
        hold_limit=d.get("hold_limit_s"),
    )
