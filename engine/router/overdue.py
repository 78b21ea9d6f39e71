"""The router's own deadlines of a request: total and idle. Pure; a watch asks for each live request."""

from __future__ import annotations

from engine.core.errors import RequestError
from engine.core.settings import Settings
from engine.router.ledger import Entry


def _legs(entry: Entry) -> str:
    legs = []
    for side, leg in entry.legs.items():
        flows = side == "decode" and entry.tokens_out and leg.status == "pending"
        legs.append(f"{side} leg on {leg.engine} {'streaming' if flows else leg.status}")
    return ", ".join(legs) or ("it waited for another pair" if entry.attempts else "no leg yet")


def overdue(entry: Entry, settings: Settings, now: float) -> RequestError | None:
    """The deadline this request has passed, None while it is in time.

    Idle counts from the last sign of life of either leg, so only once legs exist; total from admission.
    """
    age, total = now - entry.admitted_at, settings["router_total"]
    if age >= total:
        if entry.stage == "held":
            return RequestError("held_too_long", f"The request was held until its total of {total:g} s.", 503)
        return RequestError(
            "router_total_timeout",
            f"The request took over {total:g} s (PD_ROUTER_TOTAL_TIMEOUT): {_legs(entry)}.",
            504,
        )
    idle = settings["router_idle"]
    if entry.stage in ("dispatched", "streaming") and now - entry.active_at >= idle:
        return RequestError(
            "router_idle_timeout",
            f"No sign of life for {idle:g} s (PD_ROUTER_IDLE_TIMEOUT): {_legs(entry)}.",
            504,
        )
    return None
