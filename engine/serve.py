"""`python -m engine serve`: the parent process of one engine, HTTP API and supervision of its ranks."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from pathlib import Path

from engine import args as arguments
from engine.api import build_app
from engine.core.errors import Exit
from engine.core.notify import notify
from engine.core.settings import Settings
from engine.group.client import GroupClient
from engine.group.control import BEAT_INTERVAL
from engine.group.engine import Engine
from engine.group.messages import EngineConfig, Stop
from engine.group.parent import Rank, ask_where, end, forgive, kill, spawn
from engine.group.verdict import Judge
from engine.http.auth import DRILL_TOKEN_FILE, FLEET_TOKEN_FILE, token_from
from engine.http.serve import listen, serve, stop_on_signals
from engine.text import TextModel
from engine.transfer.deadlines import log_fired
from engine.weights import resolve

log = logging.getLogger("pdctl.engine")
WATCH_INTERVAL = 0.1
FRESH = 2.0


def run_serve(argv: list[str]) -> int:
    """Serve until SIGTERM or until a rank is lost; returns the exit code."""
    args = arguments.parser().parse_args(argv)
    settings = Settings.from_env(os.environ)
    token = token_from(os.environ, FLEET_TOKEN_FILE)
    drill = token_from(os.environ, DRILL_TOKEN_FILE)
    arguments.check(args, drill is not None)
    settings.check_order(args.role)
    model = resolve(Path(args.model))
    config = arguments.config_from(args, model, token or "", drill is not None)
    text = TextModel.load(model)
    with listen(config.host, config.port) as sock:
        if config.bootstrap_port:
            listen(config.host, config.bootstrap_port).close()  # taken: said now, not after the load
        ranks, folder = spawn(config)
        try:
            served = args.served_model_name or model.name
            return asyncio.run(Serve(config, settings, ranks, served).main(sock, text, token, drill))
        finally:
            end(ranks, folder, patience=2.0)


class Serve:
    """The parent's tasks: the HTTP server, the watch over the ranks, and an orderly end."""

    def __init__(self, config: EngineConfig, settings: Settings, ranks: list[Rank], served: str) -> None:
        self.config = config
        self.settings = settings
        self.ranks = ranks
        self.served = served
        self.code = Exit.OK
        self.started = time.monotonic()

    async def main(self, sock: socket.socket, text: TextModel, token: str | None, drill: str | None) -> int:
        """The engine's whole life; returns its exit code."""
        self.client = GroupClient(self.ranks, asyncio.get_running_loop())
        self.engine = Engine(self.config, self.settings, self.client, self.served)
        app = build_app(self.engine, text, token, drill)
        asked, close = stop_on_signals(), asyncio.Event()
        log.info("%s (%s) incarnation %s", self.config.instance, self.config.role, self.config.incarnation)
        serving = asyncio.create_task(
            serve(app, self.config.host, self.config.port, stop=close, sock=sock, grace=1.0)
        )
        watching = asyncio.create_task(self._watch())
        stopping = asyncio.create_task(asked.wait())
        await asyncio.wait({serving, watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not watching.done():
            await self._leave(watching)
        close.set()
        await asyncio.wait({serving}, timeout=3.0)
        return int(self.code)

    async def _watch(self) -> None:
        """Until the group is lost: the exit code and the sentence of the cause become the engine's."""
        ready = False
        judge = Judge(self.ranks, self.client.fatals, time.monotonic)
        turned = beaten = patient = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            gap, turned = time.monotonic() - turned, time.monotonic()
            if turned - beaten >= BEAT_INTERVAL:
                self.client.beat()
                beaten = turned
            if gap > FRESH:
                forgive(self.ranks, gap)
                patient = turned + FRESH
            trouble = judge.verdict(self.settings["rank"])
            if trouble is not None:
                await asyncio.sleep(WATCH_INTERVAL)  # a rank's own last word may still be on its way
                trouble = judge.verdict(self.settings["rank"])
            if trouble is None and self._late():
                trouble = Exit.RANK_FROZEN, f"not up after PD_START_TIMEOUT={self.settings['start']:g} s"
            if trouble is None and turned > patient and (trouble := self._stuck()) is not None:
                ask_where(self.ranks)
                await asyncio.sleep(WATCH_INTERVAL)
            if trouble is not None:
                self._fail(*trouble)
                return
            ready = self._notify(ready)

    def _stuck(self) -> tuple[Exit, str] | None:
        """A leader that is there and whose scheduler has made no progress for PD_STEP_TIMEOUT."""
        limit, still = self.settings["step"], self.engine.standstill
        if still is None or still < limit:
            return None
        return (
            Exit.NO_PROGRESS,
            f"its scheduler made no progress for {still:.1f} s (PD_STEP_TIMEOUT={limit:g} s)",
        )

    def _late(self) -> bool:
        return self.client.up is None and time.monotonic() - self.started > self.settings["start"]

    def _notify(self, ready: bool) -> bool:
        """READY once; after that the service manager's watchdog is fed by progress alone."""
        if not ready and self.client.up is not None:
            notify("READY=1")
            log.info("%s is up after %.1f s", self.config.instance, time.monotonic() - self.started)
            ready = True
        if self.engine.progressing(FRESH, self.settings["step"]):
            notify(f"WATCHDOG=1\nSTATUS={', '.join(self.engine.not_ready()) or 'ready'}")
        return ready

    def _fail(self, code: Exit, why: str) -> None:
        self.code = code
        why = why.removesuffix(".")
        log.error("%s ends: %s (exit %d %s)", self.config.instance, why, code, code.name)
        kill(self.ranks)
        self.client.fail_all("engine_failed", f"The engine ended: {why}.")

    def _overdue(self, limit: float) -> None:
        """The log lines of what the drain deadline ends."""
        rows = {row["id"]: row for row in self.client.snapshot.get("requests", ())}
        for id in self.client.open:
            row = rows.get(id, {})
            age, room, pages = row.get("age_s", limit), row.get("room"), row.get("pages")
            log_fired("draining", "drain", limit, age, row.get("peer"), room=room, request=id, pages=pages)

    async def _leave(self, watching: asyncio.Task[None]) -> None:
        """SIGTERM: refuse new requests, let running ones end within PD_DRAIN_TIMEOUT, stop the ranks."""
        notify("STOPPING=1")
        self.engine.stopping = True
        deadline = time.monotonic() + self.settings["drain"]
        while self.client.open and time.monotonic() < deadline and not watching.done():
            await asyncio.sleep(0.05)
        if not watching.done():
            self._overdue(self.settings["drain"])
        watching.cancel()
        limit = f"PD_DRAIN_TIMEOUT={self.settings['drain']:g} s"
        self.client.fail_all("draining", f"The engine was stopped and this did not end within {limit}.")
        self.client.send(Stop())
