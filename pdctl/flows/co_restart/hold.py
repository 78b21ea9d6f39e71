"""The router's side of a co-restart: nothing new reaches the cell from hold to resume.

A router that was never told of the cell sends it nothing, so there is nothing to hold of it.
A router that is restarted meanwhile has forgotten the hold. It is watched, held again at once, and said so.
"""

from __future__ import annotations

import threading
from collections.abc import Set
from typing import Any

from pdctl.errors import DeadlineError, PdctlError, UnreachableError
from pdctl.facts.collect import unit_of
from pdctl.fleet.model import Cell
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.waiting import until

LOOK = 0.5
# Backends' words for a router that its supervisor brings back by itself.
COMING = ("running", "starting", "backoff")


class Admissions:
    """`alone`: no other cell can serve, so everything is held; else the cell is cordoned.

    `routed` is False once it is known that no router runs; `unknown` are engines that the running one was
    never told of. `notes` are for the report.
    """

    def __init__(self, ctx: Context, cell: Cell, alone: bool, notes: list[str]) -> None:
        self._ctx = ctx
        self._cell = cell
        self._router = ctx.fleet.router
        self._alone = alone
        self._notes = notes
        self._life = ""
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._keep, daemon=True, name="hold-watch")
        self._before: set[str] | None = None
        self.routed = True
        self.unknown: set[str] = set()

    def hold(self, seconds: float) -> None:
        """PdctlError when a router that runs cannot be held."""
        self._before = self._shut(self.state())
        try:
            self._set(True, seconds)
        except UnreachableError as error:
            if "refused" not in error.message:
                raise PdctlError("router_silent", f"The router does not answer: {error.message}") from None
            if not self._coming():
                self.routed = False
                self._notes.append("The router does not run: there were no admissions to hold.")
                return
            until(self._silent, seconds)
            self._set(True, seconds)
        self._life = str(self.state().get("incarnation", ""))
        self._watch.start()

    def resume(self, seconds: float) -> None:
        """Let requests in again; nothing where no router runs."""
        self.let_go()
        if self.routed:
            self._set(False, seconds)

    def take_back(self, seconds: float) -> bool:
        """End what `hold` did, also where its order is still under way; whether there was anything to end.

        What was held before stays so. PdctlError when it cannot be seen to have ended.
        """
        self.let_go()
        if self._before is None or not self.routed:
            return False
        before = self._before
        self._set(False, seconds, keeping=before)

        def left() -> str:
            front = self.state()
            if front and not self._shut(front) - before:
                return ""
            self._set(False, seconds, keeping=before)
            return "the router holds requests back"

        until(left, seconds)
        return not before

    def let_go(self) -> None:
        """Watch no longer; what is held stays held."""
        self._over.set()
        if self._watch.ident is not None:  # else an interrupt came before it was started
            self._watch.join(5.0)

    def state(self) -> dict[str, Any]:
        return admin.state(self._ctx, self._router.url)

    def _shut(self, front: dict[str, Any]) -> set[str]:
        """What keeps requests from the cell as the router says: its own hold, cordoned engines."""
        if self._alone:
            return {self._router.name} if front.get("admission") == "held" else set()
        mine = {e.name for e in self._cell.engines}
        return {e["instance"] for e in front.get("engines", []) if e.get("cordoned")} & mine

    def _set(self, held: bool, seconds: float, keeping: Set[str] = frozenset()) -> None:
        """`keeping` is what `_shut` tells and stays as it is."""
        if front := self.state():
            told = {e["instance"] for e in front.get("engines", [])}
            # An engine that does both halves alone is none of a router's that pairs.
            self.unknown = {e.name for e in self._cell.engines if e.role != "both"} - told
        if self._alone:
            if self._router.name not in keeping:
                admin.post(self._ctx, self._router.url, "hold" if held else "resume", timeout=seconds)
            return
        for engine in self._cell.engines:
            if engine.name not in self.unknown | keeping:
                body = {"engine": engine.name, "cordoned": held}
                admin.post(self._ctx, self._router.url, "cordon", body, timeout=seconds)

    def _coming(self) -> bool:
        """Whether the router's supervisor has it or will bring it back."""
        status = self._ctx.units_of(self._router).status([self._router.name])
        return unit_of(status[self._router.name]).state in COMING

    def _silent(self) -> str:
        if self.state():
            return ""
        if not self._coming():
            raise PdctlError("router_failed", "The router ended while it was waited for.")
        return "the router does not answer"

    def _keep(self) -> None:
        while not self._over.wait(LOOK):
            try:
                life = str(self.state().get("incarnation", ""))
                if life and life != self._life:
                    self._again(life)
            except PdctlError:
                continue  # it went away again: the next look tells

    def _again(self, life: str) -> None:
        self._set(True, 5.0)
        self._life = life
        self._notes.append(
            "The router was restarted meanwhile and forgot the hold; it was held again. "
            "Requests that came in between may have failed."
        )


def caught_up(admissions: Admissions, seen: dict[str, str | None], seconds: float) -> str:
    """Wait until the router itself sees each engine ready in its new life; why not, at the deadline.

    `seen` is engine -> incarnation, None where any life will do.
    """

    def behind() -> str:
        by_name = {e["instance"]: e for e in admissions.state().get("engines", [])}
        for engine, incarnation in seen.items():
            entry = by_name.get(engine, {})
            if not entry.get("ready") or (incarnation and entry.get("incarnation") != incarnation):
                return f"the router does not see {engine} ready yet"
        return ""

    try:
        until(behind, seconds, 0.1)
    except DeadlineError as error:
        return error.message
    return ""
