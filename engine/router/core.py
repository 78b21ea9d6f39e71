"""The running router: its parts, and the tasks that go on while it serves."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx

from engine.core.errors import RequestError
from engine.core.ids import new_incarnation
from engine.core.notify import notify
from engine.core.settings import Settings
from engine.http.gone import cancel
from engine.router.config import RouterConfig
from engine.router.dispatch import Dispatcher
from engine.router.health import Health, engine_document
from engine.router.hold import Admission
from engine.router.ledger import Ledger
from engine.router.legs import LIMITS, SOCKET_OPTIONS, TIMEOUT, Legs, Refused
from engine.router.overdue import overdue
from engine.router.pairs import Pairs

log = logging.getLogger(__name__)
# How late a deadline may fire, and how soon a changed one applies to requests under way.
_WATCH = 0.1
_clock = time.monotonic


def _engine_version() -> str:
    try:
        return version("pdctl")
    except PackageNotFoundError:
        return "unknown"


class Router:
    """Everything behind the routes. Use inside `running()`."""

    def __init__(self, config: RouterConfig, settings: Settings, token: str | None) -> None:
        self.config = config
        self.settings = settings
        self.token = token
        self.incarnation = new_incarnation()
        self.started_at = time.time()
        self.stopping = False
        self.ledger = Ledger()
        self.pairs = Pairs(list(config.engines))
        self.admission = Admission(self.ledger, self.pairs, settings, _clock)
        self.address = f"{config.host}:{config.port}"
        # Proxy variables of the environment are for the outside, engines are inside.
        alive = httpx.AsyncHTTPTransport(limits=LIMITS, trust_env=False, socket_options=SOCKET_OPTIONS)
        self._http = httpx.AsyncClient(timeout=TIMEOUT, transport=alive, trust_env=False)
        self._polls = httpx.AsyncClient(timeout=TIMEOUT, limits=LIMITS, trust_env=False)
        self.health = Health(self._polls, list(config.engines), self.ledger, _clock, self.admission.changed)
        legs = Legs(self._http, self.ledger, _clock)
        self.dispatcher = Dispatcher(
            self.ledger, self.admission, self.pairs, legs, settings, _clock, self._suspect
        )

    def _suspect(self, refused: Refused) -> None:
        self.health.mark(refused.engine, f"refused a connection: {refused.message}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Poll engines and watch deadlines meanwhile."""
        tasks = [asyncio.create_task(self.health.run()), asyncio.create_task(self._watch())]
        try:
            yield
        finally:
            await cancel(*tasks)
            await self._http.aclose()
            await self._polls.aclose()

    async def _watch(self) -> None:
        fed = 0.0
        while True:
            await asyncio.sleep(_WATCH)
            now = _clock()
            for flight in list(self.dispatcher.flights.values()):
                error = overdue(flight.entry, self.settings, now)
                if error is not None and flight.end_with(error):
                    log.warning("request %s ends with %s: %s", flight.entry.id, error.code, error.message)
            if now - fed >= 1.0:
                notify("WATCHDOG=1")
                fed = now

    async def drain(self, grace: float) -> None:
        """The process was told to stop: what is not under way ends now, the rest after `grace` seconds."""
        self.stopping = True
        error = RequestError("draining", "The router is stopping.", 503, "Try again later.")
        for flight in list(self.dispatcher.flights.values()):
            if flight.entry.stage in ("admitted", "held"):
                flight.end_with(error)
        await asyncio.sleep(grace)
        for flight in list(self.dispatcher.flights.values()):
            flight.end_with(error)

    def abort(self, id: str) -> bool:
        """End a live request on behalf of an operator; False when there is none by this id."""
        flight = self.dispatcher.flights.get(id)
        error = RequestError("aborted", "The request was aborted by an operator.", 499)
        return flight is not None and flight.end_with(error)

    def reasons(self) -> list[str]:
        """Why the router would not serve now. A hold is no reason: held requests are served after it."""
        return [] if self.admission.held_since is not None else self.pairs.missing()

    def state(self) -> dict[str, Any]:
        """The /v1/state document of a router, schema 1."""
        now, since = _clock(), self.admission.held_since
        return {
            "schema": 1,
            "instance": self.config.instance,
            "role": "router",
            "incarnation": self.incarnation,
            "pid": os.getpid(),
            "started_at": self.started_at,
            "now": time.time(),
            "address": self.address,
            "versions": {"engine": _engine_version()},
            "timeouts": self.settings.document(),
            "admission": "open" if since is None else "held",
            "held": self.ledger.held,
            "hold_age_s": None if since is None else now - since,
            "hold_limit_s": self.admission.limit,
            "engines": [engine_document(e, now) for e in self.pairs.engines.values()],
            "counters": self.ledger.counters(),
            "environ": {k: v for k, v in sorted(os.environ.items()) if k.startswith("PD_")},
        }
