"""The router's requests on one cell: a router that resumes streams carries them over the restart.

So the drain waits for them a short time only; what is left is ended by the engines, waits at the router, and
goes on with the new lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pdctl.errors import DeadlineError, PdctlError
from pdctl.fleet.model import Cell
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.waiting import until

# Most answers end within this; a longer one costs less paused than its cell does while it is waited for.
GRACE = 10.0


def resumes(router_state: dict[str, Any]) -> bool:
    """Whether this router tries a request again whose engine was lost."""
    tries = (router_state.get("timeouts") or {}).get("router_tries") or {}
    return float(tries.get("value", 1)) > 1


class Carried:
    """`ids` are the requests that the cell did not end, `cut` (with a code) those that failed afterwards.

    `resumed` counts those that went on; none before `follow`.
    """

    def __init__(self, ctx: Context, cell: Cell) -> None:
        self._ctx = ctx
        self._engines = {e.name for e in cell.engines}
        self.ids: set[str] = set()
        self.cut: dict[str, str] = {}
        self.resumed = 0

    def _document(self) -> dict[str, Any]:
        """The ledger; one that cannot be had shows nothing."""
        try:
            return admin.get(self._ctx, self._ctx.fleet.router.url, "/v1/requests")
        except PdctlError:
            return {}

    def _live(self) -> list[dict[str, Any]]:
        return list(self._document().get("requests", []))

    def on_cell(self) -> list[str]:
        """Ids of the requests with a leg on the cell."""
        return [
            r["id"]
            for r in self._live()
            if any(leg and leg["engine"] in self._engines for leg in r.get("legs", {}).values())
        ]

    def take(self, ids: Iterable[str]) -> None:
        """Those of `ids`, all on the cell a moment ago, that are not over now that the cell is empty."""
        self.ids = set(ids) & {r["id"] for r in self._live()}

    def follow(self, seconds: float) -> str:
        """Once admissions are open: wait until each goes on or has ended. One sentence, "" for nothing."""
        if not self.ids:
            return ""
        try:
            until(self._waiting, seconds, 0.1)
        except DeadlineError as error:
            return error.message
        if not self.cut:
            return f"{len(self.ids)} requests were paused and went on."
        failed = ", ".join(f"{id} ({code})" for id, code in sorted(self.cut.items()))
        return f"{len(self.ids)} requests were paused, {len(self.cut)} of them failed: {failed}."

    def _waiting(self) -> str:
        document = self._document()
        ended = {e["id"]: e for e in document.get("recent", []) if e["id"] in self.ids}
        self.cut = {id: str(e["code"]) for id, e in ended.items() if e["ended"] == "failed"}
        still = [
            r["id"]
            for r in document.get("requests", [])
            if r["id"] in self.ids and r["stage"] in ("admitted", "held")
        ]
        left = [id for id, e in ended.items() if e["ended"] == "aborted"]
        self.resumed = len(self.ids) - len(self.cut) - len(still) - len(left)
        return f"{len(still)} paused requests still wait for a pair" if still else ""
