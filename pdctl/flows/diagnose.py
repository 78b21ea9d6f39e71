"""One fan-out over the fleet: engines and router twice, unit and process facts, then the rules.

Works while everything is broken: every probe has its own deadline, and what it did not get is a fact too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from pdctl.adapters.bundled import GAP, engine_pair, router_pair
from pdctl.adapters.foreign import health_pair
from pdctl.adapters.picture import Engine as EnginePicture
from pdctl.adapters.picture import Pair
from pdctl.adapters.picture import Router as RouterPicture
from pdctl.bundle.documents import load
from pdctl.bundle.read import facts_of
from pdctl.diagnose.facts import EngineView, Facts, HostView, Member, RouterView
from pdctl.diagnose.report import Report, make
from pdctl.errors import PdctlError
from pdctl.facts.collect import UnitFacts
from pdctl.facts.missing import Missing
from pdctl.facts.probes.process import OURS
from pdctl.facts.process import shown
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.profile import engine_env
from pdctl.flows.changing import fleet_lock
from pdctl.flows.context import Context
from pdctl.flows.diagnose_hosts import look
from pdctl.flows.foreign import is_foreign
from pdctl.remote.fanout import begin

LOCK_DEADLINE = 5.0


def diagnose(ctx: Context, gap: float = GAP) -> Report:
    """Collect and judge. ConfigError only for a fleet file that cannot be read."""
    started = time.monotonic()
    facts = asyncio.run(_gather(ctx, gap))
    return make(facts, time.monotonic() - started)


def judge_bundle(path: Path) -> Report:
    """The verdict over a bundle. ConfigError when it cannot be read."""
    started = time.monotonic()
    facts = facts_of(load(path), time.time())
    return make(facts, time.monotonic() - started)


async def _gather(ctx: Context, gap: float) -> Facts:
    fleet = ctx.fleet
    engines = list(fleet.engines())
    async with ctx.async_client() as client:
        probes = [asyncio.create_task(_engine_pair(client, e, gap)) for e in engines]
        asking = asyncio.create_task(_router_pair(client, fleet.router, gap))
        units, hosts = await look(ctx)
        run = await _run(ctx)
        pairs = await asyncio.gather(*probes)
        router = await asking
    answered = dict(zip((e.name for e in engines), pairs, strict=True))
    return assemble(fleet, units, hosts, answered, router, run)


async def _run(ctx: Context) -> str | Missing:
    """Who holds the fleet's lock and lives."""
    try:
        looking = asyncio.wrap_future(begin(lambda: fleet_lock(ctx).look()))
        holder = await asyncio.wait_for(looking, LOCK_DEADLINE)
    except TimeoutError:
        return Missing(f"the lock's host did not answer within {LOCK_DEADLINE:g} s")
    except PdctlError as error:
        return Missing(error.message)
    return holder.words() if holder is not None and not holder.stale else ""


async def _engine_pair(client: httpx.AsyncClient, engine: Engine, gap: float) -> Pair[EnginePicture]:
    if is_foreign(engine):
        return await health_pair(client, engine.url, engine.kind, gap)
    return await engine_pair(client, engine.url, gap)


async def _router_pair(
    client: httpx.AsyncClient, router: Router, gap: float
) -> Pair[RouterPicture] | Missing:
    if router.kind == "none":
        return Missing("the fleet file names no router")
    if is_foreign(router):
        return await health_pair(client, router.url, router.kind, gap)
    return await router_pair(client, router.url, gap)


def assemble(
    fleet: Fleet,
    units: dict[str, UnitFacts],
    hosts: Sequence[HostView],
    engines: dict[str, Pair[EnginePicture]],
    router: Pair[RouterPicture] | Missing,
    run: str | Missing,
) -> Facts:
    """Facts from what the probes brought, named as the fleet file names it."""
    views = tuple(EngineView(_member(fleet, e, units), engines[e.name]) for e in fleet.engines())
    front: RouterView | Missing = (
        router if isinstance(router, Missing) else RouterView(_member(fleet, fleet.router, units), router)
    )
    return Facts(fleet.name, time.time(), fleet.drill, views, front, tuple(hosts), run)


def _comparable(fleet: Fleet, unit: Engine | Router) -> dict[str, str]:
    """What `unit` is given of the variables that are read from a process; PD_* only where it gets them."""
    given = {name: value.value for name, value in engine_env(fleet, unit).items()}
    read = {name: text for name, text in given.items() if name.startswith(OURS)}
    return {n: t for n, t in read.items() if not (is_foreign(unit) and n.startswith("PD_"))}


def _member(fleet: Fleet, unit: Engine | Router, units: dict[str, UnitFacts]) -> Member:
    found = units[unit.name]
    expected: dict[str, str] | Missing
    try:
        expected = shown(_comparable(fleet, unit))
    except PdctlError as error:
        expected = Missing(error.message)
    return Member(
        name=unit.name,
        role=unit.role,
        cell=unit.cell if isinstance(unit, Engine) else "",
        host=unit.host,
        url=unit.url,
        bootstrap=unit.bootstrap if isinstance(unit, Engine) else None,
        expected=expected,
        unit=found.unit,
        process=found.process,
    )
