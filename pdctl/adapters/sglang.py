"""SGLang: its read-only endpoints, and their answers as a picture; pure.

GET /server_info is a round trip to the scheduler, so an answer proves that its loop turns. /v1/loads and
the gauges are what the scheduler published last: they stand still while requests sit in the PD queues alone.
GET /health computes a token and looks at none of those queues.
"""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.adapters import outline
from pdctl.adapters.endpoints import UNASKED, Answers, Endpoint, Server, answered
from pdctl.adapters.launch.read import from_json
from pdctl.adapters.picture import Engine, Reach, Sample
from pdctl.adapters.readings.answers import from_answer
from pdctl.adapters.readings.scrape import readings
from pdctl.adapters.timers import timers
from pdctl.facts.missing import Missing

# The whole topology that a prefill registered, or 503 and how many of its ranks did.
_ROUTE = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
HEALTH_DEADLINE = 21.0


def endpoints(server: Server) -> tuple[Endpoint, ...]:
    url = server.url
    asked = [
        Endpoint("server_info", f"{url}/server_info", older=f"{url}/get_server_info"),
        Endpoint("v1_loads", f"{url}/v1/loads?include=all"),
        Endpoint("metrics", f"{url}/metrics", plain=True),
        Endpoint("model_info", f"{url}/model_info", once=True, older=f"{url}/get_model_info"),
        Endpoint("health", f"{url}/health", plain=True, once=True, generates=True, deadline=HEALTH_DEADLINE),
    ]
    if server.role == "prefill" and server.bootstrap:
        asked.append(Endpoint("route", f"http://{server.bootstrap}/route?{_ROUTE}", once=True))
    return tuple(asked)


def sample(server: Server, answers: Answers, environ: Mapping[str, str], now: float) -> Sample[Engine]:
    """`environ` is the process's own, as far as it is known; `now` when it was asked (Unix seconds)."""
    info = answers.get("server_info", UNASKED)
    seconds = max((a.seconds for a in answers.values()), default=0.0)
    if not answered(answers):
        return Sample(info.reach, Missing(f"{info.reach}: {info.detail}"), info.detail, seconds)
    settings = from_json(info.body or {})
    why = _why_not(server, answers)
    picture = outline.engine(
        server,
        now,
        why,
        _numbers(answers, now),
        int(settings["page_size"]) if settings.get("page_size", "").isdigit() else 1,
        timers("sglang", server.role, settings, environ),
        {"sglang": settings["version"]} if "version" in settings else {},
    )
    return Sample(Reach.OK, picture, "; ".join(why), seconds)


def _why_not(server: Server, answers: Answers) -> tuple[str, ...]:
    found = []
    info, route, health = (answers.get(name, UNASKED) for name in ("server_info", "route", "health"))
    # Without a key, or of another version, it says nothing of its scheduler.
    if info.reach is not Reach.OK and not info.detail.startswith(("HTTP 401", "HTTP 403", "HTTP 404")):
        found.append(f"/server_info, which asks its scheduler: {info.detail or info.reach}")
    if route is not UNASKED and route.reach is not Reach.OK:
        found.append(f"its bootstrap server: {route.detail or route.reach}")
    if health is not UNASKED and health.reach is not Reach.OK:
        found.append(f"/health: {health.detail or health.reach}")
    return tuple(found)


def _numbers(answers: Answers, now: float) -> dict[str, float]:
    """Metrics first; /v1/loads, which is published more often, wins."""
    found: dict[str, float] = {}
    for reading in readings(answers.get("metrics", UNASKED).text, now):
        found |= {} if reading.rank else reading.numbers
    loads = answers.get("v1_loads", UNASKED).body
    totals: dict[str, float] = {}
    for reading in from_answer("v1_loads", loads, now) if loads else ():
        for name, value in reading.numbers.items():
            totals[name] = (
                max(totals.get(name, 0.0), value) if name == "kv_usage" else (totals.get(name, 0.0) + value)
            )
    return found | totals
