"""The router's ledger as a table."""

from __future__ import annotations

from typing import Any

from pdctl.render.status import age
from pdctl.render.table import show_table

# Seconds that the router and an engine may differ about a request.
SETTLE = 3.0


def show_requests(ledger: dict[str, Any], recent: bool) -> None:
    live = sorted(ledger["requests"], key=lambda r: -r["age_s"])
    if live:
        columns = ("id", "stage", "age", "in stage", "tokens", "prefill", "decode", "room")
        show_table(columns, [_live(r) for r in live])
    else:
        print("The router holds no requests.")
    if recent and ledger["recent"]:
        rows = [
            (r["id"], r["ended"], r["code"], f"{r['seconds']:.2f} s", age(ledger["now"] - r["ended_at"]))
            for r in sorted(ledger["recent"], key=lambda r: -r["ended_at"])
        ]
        show_table(("id", "ended", "code", "took", "ago"), rows, "ended")


def _live(r: dict[str, Any]) -> tuple[object, ...]:
    legs = r["legs"]
    return (
        r["id"],
        r["stage"],
        age(r["age_s"]),
        age(r["stage_age_s"]),
        r["tokens_out"] if r["stream"] else "-",
        _leg(r, legs["prefill"]),
        _leg(r, legs["decode"]),
        r["room"],
    )


def _leg(request: dict[str, Any], leg: dict[str, Any] | None) -> str | None:
    """What its engine says of it while it has not ended: the router itself sees no more than that."""
    if leg is None:
        return None
    if leg["status"] != "pending":
        return f"{leg['engine']} {leg['status']} {age(leg['age_s'])}"
    seen = leg["seen"]
    if seen is None:
        return f"{leg['engine']} does not answer"
    if not seen["known"]:
        if seen["still"]:
            return f"{leg['engine']} {seen['still']}"
        # What was just sent, or has just ended, is on its way.
        lost = "does not know it" if request["stage_age_s"] >= SETTLE else "sent"
        return f"{leg['engine']} {lost} {age(leg['age_s'])}"
    waits = f", waiting on {seen['waiting_on']}" if seen["waiting_on"] else ""
    still = ", no progress" if seen["moves"] is False else ""
    if seen["still"]:
        still = f", {seen['still']}"
    return f"{leg['engine']} {seen['stage']} {age(seen['stage_age_s'])}{waits}{still}"
