"""One fan-out over the fleet: engines and router twice, unit and process facts, then the rules.

Works while everything is broken: every probe has its own deadline, and what it did not get is a fact too.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from functools import partial

from pdctl.adapters.bundled import GAP, engine_pair, router_pair
from pdctl.adapters.picture import Engine as EnginePicture
from pdctl.adapters.picture import Pair
from pdctl.adapters.picture import Router as RouterPicture
from pdctl.diagnose.facts import EngineView, Facts, Member, RouterView
from pdctl.diagnose.report import Report, make
from pdctl.errors import PdctlError
from pdctl.facts.collect import HostFacts, collect
from pdctl.facts.missing import Missing
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.profile import engine_env
from pdctl.flows.context import Context
from pdctl.remote.fanout import begin

HOST_DEADLINE = 5.0


def diagnose(ctx: Context, gap: float = GAP) -> Report:
    """Collect and judge. ConfigError only for a fleet file that cannot be read."""
    started = time.monotonic()
    facts = asyncio.run(_gather(ctx, gap))
    return make(facts, time.monotonic() - started)


async def _gather(ctx: Context, gap: float) -> Facts:
    fleet = ctx.fleet
    engines = list(fleet.engines())
    async with ctx.async_client() as client:
        probes = [asyncio.create_task(engine_pair(client, e.url, gap)) for e in engines]
        asking = asyncio.create_task(router_pair(client, fleet.router.url, gap))
        hosts = await _hosts(ctx)
        pairs = await asyncio.gather(*probes)
        router = await asking
    return assemble(fleet, hosts, dict(zip((e.name for e in engines), pairs, strict=True)), router)


def assemble(
    fleet: Fleet,
    hosts: dict[str, HostFacts],
    engines: dict[str, Pair[EnginePicture]],
    router: Pair[RouterPicture],
) -> Facts:
    """Facts from what the probes brought, named as the fleet file names it."""
    views = tuple(EngineView(_member(fleet, e, hosts), engines[e.name]) for e in fleet.engines())
    front = RouterView(_member(fleet, fleet.router, hosts), router)
    return Facts(fleet.name, time.time(), fleet.drill, views, front)


def _member(fleet: Fleet, unit: Engine | Router, hosts: dict[str, HostFacts]) -> Member:
    host = hosts[unit.name]
    expected: dict[str, str] | Missing
    try:
        expected = {name: value.value for name, value in engine_env(fleet, unit).items()}
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
        unit=host.unit,
        process=host.process,
    )


async def _hosts(ctx: Context) -> dict[str, HostFacts]:
    """Unit name -> facts. A host that does not answer in time costs its deadline and no more."""
    names: dict[str, list[str]] = defaultdict(list)
    for unit in ctx.fleet.units():
        names[unit.host].append(unit.name)
    found = await asyncio.gather(*(_host(ctx, host, of) for host, of in names.items()))
    return {name: facts for host in found for name, facts in host.items()}


async def _host(ctx: Context, host: str, names: list[str]) -> dict[str, HostFacts]:
    local = ctx.fleet.hosts[host].spec.transport == "local"
    try:
        units = ctx.units(host)
        looking = begin(partial(collect, units, names, local))
        return await asyncio.wait_for(asyncio.wrap_future(looking), HOST_DEADLINE)
    except TimeoutError:
        missing = Missing(f"host {host} did not answer within {HOST_DEADLINE:g} s")
    except PdctlError as error:
        missing = Missing(error.message)
    return dict.fromkeys(names, HostFacts(missing, missing))
