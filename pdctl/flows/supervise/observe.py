"""Look at the whole fleet, again and again: engines and router over HTTP each time, hosts now and then.

A look ends whoever is silent: each party has its own deadline, and those that did not answer last time wait
in a lane of their own, so that a dead half of the fleet does not make the other half's look late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import httpx

from pdctl.adapters.picture import Reach, Sample
from pdctl.errors import PdctlError
from pdctl.facts.missing import Missing
from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context
from pdctl.flows.deploy.desired import RELEASE
from pdctl.flows.foreign import is_foreign
from pdctl.flows.party import Party
from pdctl.remote.fanout import CONCURRENT, begin
from pdctl.supervisor.observation import (
    EngineLook,
    HostLook,
    Observation,
    RouterLook,
    engine_look,
    router_look,
)
from pdctl.units.spec import UnitStatus

DEADLINE = 2.0  # of each question to an engine or the router
HOSTS_EVERY, HOST_DEADLINE = 60.0, 30.0
# Parties asked at once: of those that answer, which costs work here, and of the silent, which costs none. One
# that turns out to be silent keeps its place among the quick for HELD seconds.
QUICK, PATIENT, HELD = 64, 1024, 0.25

Found = tuple[dict[str, UnitStatus], dict[str, str]]  # unit -> state, unit -> release


@dataclass
class _Asked:
    """One party with its own client: a pool shared by a thousand servers is searched for every request."""

    party: Party
    look: EngineLook | RouterLook
    client: httpx.AsyncClient


class Observer:
    """`async with Observer(ctx) as observer: await observer.look()`.

    `ctx` is its own: a run's journal would otherwise list every look. `wall` and `monotonic` are the clocks
    that looks are stamped with.
    """

    def __init__(
        self,
        ctx: Context,
        hosts_every: float = HOSTS_EVERY,
        deadline: float = DEADLINE,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ctx, self._hosts_every, self._deadline = ctx, hosts_every, deadline
        self._wall, self._monotonic = wall, monotonic
        self._number = 0
        self._hosts: dict[str, HostLook] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._open = AsyncExitStack()
        self._parties: list[_Asked] = []

    async def __aenter__(self) -> Observer:
        self._quick, self._patient = asyncio.Semaphore(QUICK), asyncio.Semaphore(PATIENT)
        self._places = asyncio.Semaphore(CONCURRENT)
        fleet = self._ctx.fleet
        units: list[Engine | Router] = [*fleet.engines()]
        units += [fleet.router] if fleet.router.kind != "none" else []
        for unit in units:
            # Other kinds close a connection that was idle for five seconds, just when the next look uses it.
            keep = 0 if is_foreign(unit) else None
            client = self._ctx.async_client(self._deadline, connections=4, keep=keep)
            await self._open.enter_async_context(client)
            self._parties.append(_Asked(Party(self._ctx, unit), _blank(unit), client))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await self._open.aclose()

    async def look(self) -> Observation:
        """One look. Nothing is raised for what does not answer."""
        self._number += 1
        at, began = self._wall(), self._monotonic()
        self._begin_hosts(began)
        await asyncio.gather(*map(self._ask, self._parties))
        looks = [self._with_unit(asked.look) for asked in self._parties]
        return Observation(
            fleet=self._ctx.fleet.name,
            number=self._number,
            at=at,
            monotonic=began,
            engines=tuple(each for each in looks if isinstance(each, EngineLook)),
            router=next((each for each in looks if isinstance(each, RouterLook)), None),
            hosts=tuple(self._hosts[name] for name in self._ctx.fleet.hosts if name in self._hosts),
            seconds=self._monotonic() - began,
        )

    async def _ask(self, asked: _Asked) -> None:
        quick = asked.look.answered
        work = None
        try:
            async with self._quick if quick else self._patient:
                work = asyncio.create_task(self._sample(asked))
                await asyncio.wait([work], timeout=HELD if quick else None)
            sample = await work
        finally:
            if work is not None:
                work.cancel()
        blank = _blank(asked.party.unit)
        if isinstance(blank, RouterLook):
            asked.look = router_look(blank, sample)
        else:
            asked.look = engine_look(blank, sample)

    async def _sample(self, asked: _Asked) -> Sample[Any]:
        try:
            return await asked.party.sample(asked.client, self._deadline)
        except Exception as error:  # noqa: BLE001 - one answer that nobody foresaw is no end of the looking
            detail = f"its answer could not be read ({type(error).__name__}: {error})"
            return Sample(Reach.BAD_ANSWER, Missing(detail), detail)

    def _with_unit(self, look: EngineLook | RouterLook) -> EngineLook | RouterLook:
        """With what its host said of the unit that it runs in."""
        host = self._hosts.get(look.host)
        if host is None or isinstance(look, RouterLook):
            return look
        unit = host.units.get(look.name)
        return replace(
            look, release=host.releases.get(look.name, ""), inputs=unit.inputs if unit else look.inputs
        )

    def _begin_hosts(self, now: float) -> None:
        """Ask those whose turn it is, in the background: a look never waits for SSH."""
        for name in self._ctx.fleet.hosts:
            last, running = self._hosts.get(name), self._asking.get(name)
            due = last is None or now - last.monotonic >= self._hosts_every
            if due and (running is None or running.done()):
                self._asking[name] = asyncio.create_task(self._ask_host(name))

    async def _ask_host(self, name: str) -> None:
        async with self._places:
            began = self._monotonic()
            work = asyncio.wrap_future(begin(lambda: self._units(name)))
            why, found = "", None
            try:
                found = await asyncio.wait_for(asyncio.shield(work), HOST_DEADLINE)
            except PdctlError as error:
                why = error.message
            except TimeoutError:
                why = f"{name} did not answer within {HOST_DEADLINE:g} s."
            except Exception as error:  # noqa: BLE001 - a look says it; the daemon goes on
                why = f"{type(error).__name__}: {error}"
            self._hosts[name] = self._host_look(name, began, why, found)
        if not work.done():  # its thread is still at it: nobody asks again until it has given up
            await asyncio.gather(work, return_exceptions=True)

    def _host_look(self, name: str, began: float, why: str, found: Found | None) -> HostLook:
        now, before = self._monotonic(), self._hosts.get(name)
        units, releases = found or ((before.units, before.releases) if before else ({}, {}))
        return HostLook(
            name,
            reachable=found is not None,
            at=self._wall(),
            monotonic=now,
            seconds=now - began,
            detail=why,
            local=self._ctx.fleet.hosts[name].local,
            units=units,
            releases=releases,
        )

    def _units(self, host: str) -> Found:
        units = self._ctx.units(host)
        specs = units.specs()
        return units.status(), {name: spec.env.get(RELEASE, "") for name, spec in specs.items()}


def _blank(unit: Engine | Router) -> EngineLook | RouterLook:
    if isinstance(unit, Router):
        return RouterLook(unit.name, unit.host, unit.kind)
    return EngineLook(unit.name, unit.cell, unit.role, unit.host, unit.kind)
