"""sglang-router, also called smg: its read-only endpoints, and their answers as a picture; pure.

It counts requests of each worker and lists none, so its ledger is Missing. A worker that died is healthy to
it until three checks have failed, with the defaults up to three minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdctl.adapters.endpoints import UNASKED, Answers, Endpoint, Server, answered
from pdctl.adapters.picture import Reach, Router, RouterEngine, Sample
from pdctl.adapters.readings.scrape import samples
from pdctl.adapters.timers import timers
from pdctl.facts.missing import Missing

METRICS_PORT = 29000


def endpoints(server: Server) -> tuple[Endpoint, ...]:
    url = server.url
    metrics = server.at(server.metrics_port or METRICS_PORT)
    return (
        Endpoint("readiness", f"{url}/readiness"),
        Endpoint("workers", f"{url}/workers"),
        Endpoint("metrics", f"{metrics}/metrics", plain=True),
        Endpoint("loads", f"{url}/get_loads", once=True),
    )


def sample(
    server: Server,
    answers: Answers,
    settings: Mapping[str, str],
    environ: Mapping[str, str],
    now: float,
) -> Sample[Router]:
    """Its counts as one picture; a worker's instance is its URL, which is how it knows it."""
    ready, workers = answers.get("readiness", UNASKED), answers.get("workers", UNASKED)
    seconds = max((a.seconds for a in answers.values()), default=0.0)
    if not answered(answers):
        return Sample(ready.reach, Missing(f"{ready.reach}: {ready.detail}"), ready.detail, seconds)
    if ready.reach is not Reach.OK:
        detail = f"/readiness: {ready.detail or ready.reach}"
        reach = Reach.BAD_ANSWER if ready.reach is Reach.BAD_ANSWER else ready.reach
        missing = Missing(detail)
        return Sample(
            reach,
            missing if workers.body is None else _router(server, answers, settings, environ, now),
            detail,
            seconds,
        )
    return Sample(Reach.OK, _router(server, answers, settings, environ, now), "", seconds)


def _router(
    server: Server,
    answers: Answers,
    settings: Mapping[str, str],
    environ: Mapping[str, str],
    now: float,
) -> Router:
    unknown = Missing(f"{server.kind} does not show it")
    body = answers.get("workers", UNASKED).body or {}
    active = _active(answers.get("metrics", UNASKED).text)
    return Router(
        kind=server.kind,
        instance=server.name,
        incarnation=unknown,
        pid=unknown,
        started_at=unknown,
        now=now,
        address=server.url.removeprefix("http://"),
        admission="open",
        held=0,
        hold_age=None,
        engines=tuple(_worker(row, active) for row in body.get("workers", ()) if isinstance(row, dict)),
        timeouts=timers("sglang-router", "router", settings, environ),
        requests_failed={},
        environ={},
        requests=Missing(f"{server.kind} counts requests and does not list them"),
    )


def _active(metrics: str) -> dict[str, int]:
    """Worker's URL -> requests that the router counts on it."""
    return {
        s.labels.get("worker", ""): int(s.value)
        for s in samples(metrics)
        if s.name == "smg_worker_requests_active"
    }


def _worker(row: Mapping[str, Any], active: Mapping[str, int]) -> RouterEngine:
    url = str(row.get("url", ""))
    healthy = bool(row.get("is_healthy"))
    load = row.get("load")
    counted = active.get(url, int(load) if isinstance(load, int | float) else 0)
    return RouterEngine(
        instance=url.removeprefix("http://"),
        role=str(row.get("worker_type", "")),
        cell="",
        url=url,
        ready=healthy,
        cordoned=False,
        last_ok_age=None,
        error=None if healthy else "its health check fails",
        incarnation=None,
        active=counted,
    )
