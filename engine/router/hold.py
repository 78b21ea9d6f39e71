"""Admission: requests pass when admissions are open and a pair is usable, otherwise they wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from engine.core.errors import RequestError
from engine.core.settings import BY_NAME, Settings
from engine.router.ledger import Entry, Ledger
from engine.router.pairs import Failed, Pair, Pairs

log = logging.getLogger(__name__)
# How often one that failed before looks whether its engines have answered a poll since.
_LOOK = 0.1


class Admission:
    """One gate for all requests. `changed()` must be called when an engine's usability changes."""

    def __init__(self, ledger: Ledger, pairs: Pairs, settings: Settings, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._pairs = pairs
        self._settings = settings
        self._clock = clock
        self._news = asyncio.Event()
        self._limit: float | None = None
        self.held_since: float | None = None

    def changed(self) -> None:
        """Wake all that wait, to look again."""
        self._news.set()
        self._news = asyncio.Event()

    def hold(self, limit: float | None = None) -> None:
        """Close admissions. `limit` is the longest wait of a request during this hold, if not the setting."""
        if self.held_since is None:
            self.held_since = self._clock()
        self._limit = limit

    def resume(self) -> None:
        self.held_since = None
        self._limit = None
        self.changed()

    @property
    def limit(self) -> float:
        """Seconds a request may be held."""
        return self._settings["router_hold"] if self._limit is None else self._limit

    async def pair(self, entry: Entry, failed: Sequence[Failed] = (), begun: bool = False) -> Pair:
        """Wait for open admissions and a usable pair; RequestError 503 held_too_long or no_pair.

        `failed` pairs are taken again only where there is no other. `begun`: the client has a part of its
        answer already, and is kept for as long as a held one.
        """
        patience = "router_hold" if begun else "router_pair"
        held = 0.0  # seconds spent held, before the present hold
        pairless_since: float | None = None
        while True:
            now = self._clock()
            if self.held_since is not None:
                self._ledger.hold(entry, now)
                pairless_since = None
                remaining = self.limit - held - (now - entry.stage_at)
                if remaining <= 0:
                    raise self._held_too_long(entry)
            else:
                if entry.stage == "held":
                    held += now - entry.stage_at
                    self._ledger.release(entry, now)
                pair = self._pairs.pick(failed)
                if pair is not None:
                    return pair
                pairless_since = now if pairless_since is None else pairless_since
                remaining = self._settings[patience] - (now - pairless_since)
                if remaining <= 0:
                    raise self._no_pair(entry, patience)
            await self._wait(min(remaining, _LOOK) if failed else remaining)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass  # the caller looks at its deadline

    def _held_too_long(self, entry: Entry) -> RequestError:
        waited = f"this request waited {self._clock() - entry.admitted_at:.1f} s"
        limit = f"{BY_NAME['router_hold'].env}={self.limit:g} s"
        return _late(entry, "held_too_long", f"Admissions are held; {waited} ({limit}).")

    def _no_pair(self, entry: Entry, patience: str) -> RequestError:
        reasons = "; ".join(self._pairs.missing()) or "engines came and went"
        limit = f"{BY_NAME[patience].env}={self._settings[patience]:g} s"
        return _late(entry, "no_pair", f"No pair could serve this request within {limit}: {reasons}.")


def _late(entry: Entry, code: str, message: str) -> RequestError:
    log.warning("request %s ends with %s: %s", entry.id, code, message)
    return RequestError(code, message, 503, "Try again later.")
