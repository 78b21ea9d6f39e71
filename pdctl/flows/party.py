"""One engine or router of the fleet file that is asked for its picture: prepared once, asked again."""

from __future__ import annotations

import time
from typing import Any

import httpx

from pdctl.adapters.endpoints import ask
from pdctl.adapters.kinds import endpoints, sample
from pdctl.adapters.launch.read import from_command
from pdctl.adapters.picture import Reach, Sample
from pdctl.facts.missing import Missing
from pdctl.fleet.model import Engine, Router
from pdctl.flows.collect.run import headers
from pdctl.flows.collect.servers import server
from pdctl.flows.context import Context


class Party:
    """Asks only what its picture is made of, and nothing that computes a token."""

    def __init__(self, ctx: Context, unit: Engine | Router) -> None:
        self.unit = unit
        self._there = unit.kind != "none"
        if self._there:
            self._server = server(unit)
            self._wanted = [e for e in endpoints(self._server) if e.pictured and not e.generates]
            self._headers = headers(ctx, unit)
            self._settings = from_command(unit.spec.command or ())

    async def sample(self, client: httpx.AsyncClient, deadline: float) -> Sample[Any]:
        """One sample; `deadline` bounds each of its questions, seconds. Never raises for an answer."""
        if not self._there:
            return Sample(Reach.OK, Missing("the fleet file names no router"))
        answers = await ask(client, self._wanted, deadline, self._headers)
        return sample(self._server, answers, time.time(), self._settings, self.unit.env)
