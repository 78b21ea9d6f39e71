"""Admission: requests pass when admissions are open and a pair is usable, otherwise they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from engine.core.errors import RequestError
from engine.core.settings import Settings
from engine.router.ledger import Entry, Ledger
from engine.router.pairs import Failed, Pair, Pairs

# A restarting engine is back within this or an operator is at work and uses a hold. A client that has a
# part of its answer already is kept for as long as a held one.
_PAIR_WAIT = 10.0
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

        `failed` pairs are taken again only where there is no other; `begun`: the client has a part.
        """
        patience = self._settings["router_hold"] if begun else min(_PAIR_WAIT, self._settings["router_hold"])
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
                remaining = patience - (now - pairless_since)
                if remaining <= 0:
                    raise self._no_pair()
            await self._wait(min(remaining, _LOOK) if failed else remaining)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass  # the caller looks at its deadline

    def _held_too_long(self, entry: Entry) -> RequestError:
        message = f"Admissions are held; this request waited {self._clock() - entry.admitted_at:.1f} s."
        return RequestError("held_too_long", message, 503, "Try again later.")

    def _no_pair(self) -> RequestError:
        reasons = "; ".join(self._pairs.missing()) or "engines came and went"
        return RequestError("no_pair", f"No pair can serve this request: {reasons}.", 503, "Try again later.")
