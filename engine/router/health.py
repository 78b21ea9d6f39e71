"""Polls every engine: is it ready, is it the one we were told of, what does it show of our requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from engine.router.ledger import Ledger
from engine.router.pairs import Engine

log = logging.getLogger(__name__)
INTERVAL = 0.5
_DEADLINE = 2.0
# A frozen or overloaded engine misses several polls; one late answer says nothing.
_SILENT_POLLS = 2


class _Ready(msgspec.Struct):
    ready: bool
    reasons: list[str] = []


class _Request(msgspec.Struct):
    id: str
    stage: str
    computed_tokens: int = 0
    output_tokens: int = 0


class _State(msgspec.Struct):
    instance: str
    role: str
    incarnation: str
    requests: list[_Request] = []


class Health:
    """`changed` is called when an engine became usable or stopped being so."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        engines: list[Engine],
        ledger: Ledger,
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self._http = http
        self._engines = engines
        self._ledger = ledger
        self._clock = clock
        self._changed = changed

    async def run(self) -> None:
        """Poll until cancelled, each engine on its own so that a silent one delays no other."""
        async with asyncio.TaskGroup() as group:
            for engine in self._engines:
                group.create_task(self._watch(engine))

    async def _watch(self, engine: Engine) -> None:
        silent = 0
        while True:
            asked_at = self._clock()
            try:
                async with asyncio.timeout(_DEADLINE):
                    answer = await self._poll(engine)
                engine.asked_at = asked_at
                self._note(engine, *answer)
                silent = 0
            except TimeoutError:
                silent += 1
                if silent >= _SILENT_POLLS:
                    self.mark(engine, f"no answer within {_DEADLINE:g} s, {silent} times")
            except httpx.HTTPError as e:
                self.mark(engine, f"cannot be reached: {str(e) or type(e).__name__}")
            except (msgspec.MsgspecError, RecursionError) as e:
                self.mark(engine, f"its answer is not an engine's: {e}")
            await asyncio.sleep(INTERVAL)

    async def _poll(self, engine: Engine) -> tuple[_Ready, _State]:
        ready = await self._http.get(f"{engine.url}/ready")
        state = await self._http.get(f"{engine.url}/v1/state")
        return (
            msgspec.json.decode(ready.content, type=_Ready),
            msgspec.json.decode(state.content, type=_State),
        )

    def _note(self, engine: Engine, ready: _Ready, state: _State) -> None:
        now = self._clock()
        engine.last_ok = now
        if engine.incarnation not in (None, state.incarnation):
            log.info("%s is a new incarnation: %s", engine.instance, state.incarnation)
        engine.incarnation = state.incarnation
        for request in state.requests:
            mark = (request.stage, request.computed_tokens, request.output_tokens)
            self._ledger.progress(request.id, engine.instance, mark, request.stage == "waiting", now)
        if (state.instance, state.role) != (engine.instance, engine.role):
            self.mark(
                engine, f"{engine.url} is {state.instance}, a {state.role}; check the router's arguments"
            )
        elif not ready.ready:
            self.mark(engine, "; ".join(ready.reasons) or "not ready")
        else:
            self.mark(engine, None)

    def mark(self, engine: Engine, error: str | None) -> None:
        """Set what is wrong with an engine, None for nothing; it is ready without an error."""
        engine.error = error
        if engine.ready != (error is None):
            engine.ready = error is None
            log.info("%s is %s", engine.instance, "ready" if engine.ready else f"not ready: {error}")
            self._changed()


def engine_document(engine: Engine, now: float) -> dict[str, Any]:
    """One entry of `engines` in the router's /v1/state."""
    host_port = None if engine.bootstrap is None else f"{engine.bootstrap[0]}:{engine.bootstrap[1]}"
    return {
        "instance": engine.instance,
        "role": engine.role,
        "cell": engine.cell,
        "url": engine.url,
        "bootstrap": host_port,
        "ready": engine.ready,
        "cordoned": engine.cordoned,
        "last_ok_age_s": None if engine.last_ok is None else now - engine.last_ok,
        "error": engine.error,
        "incarnation": engine.incarnation,
        "active": engine.active,
    }
