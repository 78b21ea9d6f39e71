"""Preflight: every host asked at once, the ways between them walked, KV really moved; then judged.

Works on a fleet that was never deployed, on one that runs, and while hosts are away. Changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping

from pdctl.adapters.bundled import ask_engine
from pdctl.adapters.picture import Engine as Picture
from pdctl.adapters.picture import Reach, Sample
from pdctl.errors import DeadlineError, PdctlError, UnreachableError
from pdctl.facts.missing import Missing
from pdctl.fleet.order import refuse_disorder
from pdctl.fleet.supervised import refuse_elsewhere
from pdctl.flows.changing import fleet_lock
from pdctl.flows.check import edges, machine, ucx, units
from pdctl.flows.check import transfer as probes
from pdctl.flows.check.hosts import HostState, Launch, look
from pdctl.flows.check.reach import apart, walk, ways
from pdctl.flows.check.report import CheckReport, Line, fail, ordered
from pdctl.flows.context import Context
from pdctl.remote.fanout import begin

ASK = 2.0


def check(
    ctx: Context,
    transfer: float | None = probes.DEADLINE,
    given: Mapping[str, Launch] | None = None,
    ending: Collection[str] = (),
) -> CheckReport:
    """`transfer` seconds for each NIXL probe, None for none.

    `given` are, by unit, launches of a release that is installed and not used yet: a deploy asks of them what
    it would else ask of the units that are there. `ending` are units that it stops before it starts any: what
    they hold is as good as free, and what they say of themselves is not asked.
    """
    started = time.monotonic()
    refuse_disorder(ctx.fleet)
    refuse_elsewhere(ctx.fleet)
    ctx.wait(f"looking at {', '.join(ctx.fleet.hosts)}")
    asking = begin(lambda: asyncio.run(_pictures(ctx, ending)))
    looked = look(ctx, given or {}, ending)
    states = {h: s for h, s in looked.items() if isinstance(s, HostState)}
    away = tuple(h for h, s in looked.items() if isinstance(s, UnreachableError | DeadlineError))
    lines = [_away(h, s) for h, s in looked.items() if isinstance(s, PdctlError)]
    wanted = ways(ctx.fleet, states)
    ctx.wait("trying the addresses")
    walked = walk(ctx, states, wanted, _quiet(ctx, states))
    lines += _hosts(ctx, states)
    lines += edges.agreement(ctx.fleet, states, pictures := asking.result())
    lines += edges.addresses(states, walked, wanted)
    lines += edges.advertised(ctx.fleet, states, pictures)
    lines += edges.unnamed_ports(ctx.fleet, states, walked)
    lines += edges.packets(ctx.fleet, states, walked)
    if transfer is not None:
        lines += probes.lines(ctx, states, walked, transfer)
    ctx.wait("")
    seconds = time.monotonic() - started
    return CheckReport(ctx.fleet.name, time.time(), seconds, ordered(lines), away)


def _hosts(ctx: Context, states: Mapping[str, HostState]) -> Iterator[Line]:
    """What each host is and has, by itself; clocks are judged together."""
    across = {
        e.name
        for p, d in edges.pairs(ctx.fleet, states)
        for e in (p, d)
        if apart(states[p.host], states[d.host])
    }
    clocks = list(machine.clock_lines({h: s.clock for h, s in states.items()}))
    for host, state in states.items():
        yield from machine.lines(state)
        yield from (line for line in clocks if line.subject == host)
        yield from units.lines(state)
        yield from ucx.lines(state, across)
    yield from (line for line in clocks if line.subject not in states)


def _quiet(ctx: Context, states: Mapping[str, HostState]) -> bool:
    """Whether no other run of pdctl changes the fleet now; its own is no hindrance, and a lock by hand says
    that nobody does."""
    if ctx.journal is not None:
        return True
    if ctx.fleet.control not in states:
        return False
    try:
        holder = fleet_lock(ctx).look()
    except PdctlError:
        return False
    return holder is None or holder.stale or holder.manual


def _away(host: str, error: PdctlError) -> Line:
    """One line for all that is not known of it."""
    away = isinstance(error, UnreachableError | DeadlineError)
    fix = error.hint or (f"ssh {host} true" if away else "see what it says")
    return fail(host, "host", error.message, "it answers", fix)


async def _pictures(ctx: Context, ending: Collection[str]) -> dict[str, Picture | Missing]:
    """What running engines say of themselves; Missing for those that do not run, or not for long, and with
    the reason for those that do and do not say it."""
    found: dict[str, Picture | Missing] = dict.fromkeys(ending, Missing("it is about to be stopped"))
    engines = [engine for engine in ctx.fleet.engines() if engine.name not in found]
    async with ctx.async_client() as client:
        asked = (ask_engine(client, engine.url, ASK) for engine in engines)
        samples: list[Sample[Picture]] = await asyncio.gather(*asked)
    pictures = zip(engines, samples, strict=True)
    return found | {engine.name: _said(engine.name, sample) for engine, sample in pictures}


def _said(name: str, sample: Sample[Picture]) -> Picture | Missing:
    if not isinstance(sample.picture, Missing):
        return sample.picture
    if sample.reach is Reach.TIMED_OUT:
        return Missing(f"{name} did not answer within {ASK:g} s")
    return Missing(f"{name} did not answer: {sample.detail or sample.picture.reason}")
