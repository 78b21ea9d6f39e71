"""The router's ledger as a table."""

from __future__ import annotations

from typing import Any

from pdctl.render.status import age
from pdctl.render.table import show_table


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
        _leg(legs["prefill"], "working"),
        _leg(legs["decode"], "streaming" if r["stage"] == "streaming" else "working"),
        r["room"],
    )


def _leg(leg: dict[str, Any] | None, pending: str) -> str | None:
    """`pending` is what a leg that has not ended is called: the router sees no more of it than that."""
    if leg is None:
        return None
    status = pending if leg["status"] == "pending" else leg["status"]
    return f"{leg['engine']} {status} {age(leg['age_s'])}"
