"""What diagnose asks of every host, in one question each: units, processes, clock, disk, ports, peers."""

from __future__ import annotations

import asyncio
from functools import partial

from pdctl.diagnose.facts import HostView
from pdctl.errors import PdctlError
from pdctl.facts import clock, machine, ports, reach
from pdctl.facts.ask import Answers, Request
from pdctl.facts.collect import UnitFacts, collect
from pdctl.facts.missing import Missing
from pdctl.fleet.model import Fleet
from pdctl.flows.asking import ask_host
from pdctl.flows.context import Context
from pdctl.remote.fanout import begin

HOST_DEADLINE = 5.0
Looked = tuple[dict[str, UnitFacts], HostView]


async def look(ctx: Context) -> tuple[dict[str, UnitFacts], tuple[HostView, ...]]:
    """Unit name -> facts, and every host. One that does not answer in time costs its deadline and no more."""
    looked = await asyncio.gather(*(_host(ctx, host) for host in ctx.fleet.hosts))
    return {name: facts for units, _ in looked for name, facts in units.items()}, tuple(v for _, v in looked)


def request(fleet: Fleet, host: str) -> Request:
    """What is asked of `host` beside its units' processes."""
    here = fleet.hosts[host]
    mine = [port for unit in fleet.units() if unit.host == host for port in unit.ports]
    return {
        "clock": {},
        "disk": {"path": here.root},
        **ports.request(here.address, mine),
        "reach": {"targets": _peers(fleet, host), "goodbye": [], "seconds": reach.CONNECT},
    }


def _peers(fleet: Fleet, host: str) -> list[dict[str, object]]:
    """What the units of `host` connect to: decodes dial prefills, the router reaches every engine."""
    wanted = [(p.address, p.bootstrap_port) for p, d in fleet.edges() if d.host == host]
    if fleet.router.host == host and fleet.router.kind != "none":
        wanted += [(e.address, e.port) for e in fleet.engines()]
    return [{"address": a, "port": p, "gently": True} for a, p in dict.fromkeys(wanted) if p is not None]


async def _host(ctx: Context, host: str) -> Looked:
    names = [unit.name for unit in ctx.fleet.units() if unit.host == host]
    asked = request(ctx.fleet, host)
    try:
        asking = partial(ask_host, ctx, host, deadline=HOST_DEADLINE)
        looking = begin(partial(collect, ctx.units(host), asking, names, asked))
        units, answers = await asyncio.wait_for(asyncio.wrap_future(looking), HOST_DEADLINE)
        return units, view(ctx.fleet, host, answers)
    except TimeoutError:
        why = f"host {host} did not answer within {HOST_DEADLINE:g} s"
    except PdctlError as error:
        why = error.message
    missing = Missing(why)
    lost = Answers({}, dict.fromkeys(asked, why), 0.0, 0.0)
    return dict.fromkeys(names, UnitFacts(missing, missing)), view(ctx.fleet, host, lost)


def view(fleet: Fleet, host: str, answers: Answers) -> HostView:
    return HostView(
        name=host,
        address=fleet.hosts[host].address,
        clock=clock.parse(answers),
        disk=machine.room(answers.of("disk")),
        ports=ports.parse(answers.of("ports")),
        reach=reach.parse(answers.of("reach")),
    )
