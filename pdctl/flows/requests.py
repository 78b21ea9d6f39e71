"""The router's ledger, with what each engine that has not ended its leg says of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pdctl.errors import PdctlError
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.remote.fanout import fan_out

ASK = 2.0
# Seconds after which a leg is looked at twice, and between the two looks: whether bytes arrive.
QUIET, BETWEEN = 3.0, 1.0
# An engine publishes its state several times a second while it can, and hears its ranks every second.
FRESH = 5.0
_MOVES = ("inflight", "transferring")
Leg = dict[str, Any]


def collect_requests(ctx: Context) -> dict[str, Any]:
    """router_requests.json; every pending leg has `seen` besides.

    `seen` is None for an engine that does not answer, or has no state yet. `known` is False where it answers
    and has no such request; else `stage`, `stage_age_s` and `waiting_on` are the engine's, and `moves` tells
    of a transfer that has lasted whether it went on while it was looked at, None of others. `still` says of
    either why the engine gets on with nothing, "" when it does.
    """
    ledger = admin.get(ctx, ctx.fleet.router.url, "/v1/requests")
    names = {leg["engine"] for _, leg in _pending(ledger)}
    first = _states(ctx, names)
    for request, leg in _pending(ledger):
        leg["seen"] = _seen(first.get(leg["engine"]), request)
    lasting = [(request, leg) for request, leg in _pending(ledger) if _lasts(leg["seen"])]
    if lasting:
        time.sleep(BETWEEN)
        second = _states(ctx, {leg["engine"] for _, leg in lasting})
        for request, leg in lasting:
            now = _seen(second.get(leg["engine"]), request)
            same = now is not None and (now.get("stage"), now.get("bytes")) == (
                leg["seen"]["stage"],
                leg["seen"]["bytes"],
            )
            leg["seen"]["moves"] = not same
    return ledger


def _pending(ledger: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Leg]]:
    for request in ledger["requests"]:
        for leg in request["legs"].values():
            if leg is not None and leg["status"] == "pending":
                yield request, leg


def _states(ctx: Context, names: set[str]) -> dict[str, dict[str, Any]]:
    urls = {e.name: e.url for e in ctx.fleet.engines() if e.name in names}
    found = fan_out(urls, lambda name: admin.get(ctx, urls[name], "/v1/state", ASK))
    good = {n: s for n, s in found.items() if not isinstance(s, PdctlError)}
    return {n: s for n, s in good.items() if s["snapshot_age_s"] is not None}


def _still(state: dict[str, Any]) -> str:
    """Why this engine gets on with nothing, by what it says of itself; "" when it does.

    Its HTTP server answers, and its leader publishes, while another rank is frozen: all that is seen then is
    that the rank is silent and that the step that needs it goes on and on.
    """
    if state["snapshot_age_s"] > FRESH:
        return f"frozen: no state for {state['snapshot_age_s']:.1f} s"
    silent = [r for r in state["ranks"] if (r["heartbeat_age_s"] or 0.0) > FRESH]
    if silent:
        return f"frozen: rank {silent[0]['rank']} silent for {silent[0]['heartbeat_age_s']:.1f} s"
    progress = state["progress"]
    if (progress["stepping_s"] or 0.0) > FRESH:
        return f"in one step for {progress['stepping_s']:.1f} s"
    idle = (progress["loop_age_s"] or 0.0) + (progress.get("stalled_s") or 0.0)
    return f"no step for {idle:.1f} s" if idle > FRESH else ""


def _seen(state: dict[str, Any] | None, request: dict[str, Any]) -> dict[str, Any] | None:
    if state is None:
        return None
    for row in state["requests"]:
        if row["id"] == request["id"] or (request["room"] is not None and row["room"] == request["room"]):
            said = {key: row[key] for key in ("stage", "stage_age_s", "waiting_on", "bytes")}
            return {"known": True, **said, "moves": None, "still": _still(state)}
    return {"known": False, "still": _still(state)}


def _lasts(seen: dict[str, Any] | None) -> bool:
    if seen is None or not seen["known"]:
        return False
    return seen["stage"] in _MOVES and bool(seen["stage_age_s"] >= QUIET)
