"""The gate of a deploy: readiness, real requests with their bodies checked, and the record of what passed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from typing import Any

from pdctl.fleet.model import Engine, Router
from pdctl.flows import admin
from pdctl.flows.canary import edge_canary, engine_canary, router_canary
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Author, entry, record
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.deploy.look import HostState, States
from pdctl.flows.deploy.starts import ready_step
from pdctl.flows.foreign import is_foreign, knows_edges
from pdctl.flows.ready import not_ready
from pdctl.plan.run import run_plan
from pdctl.plan.step import Step, make_plan
from pdctl.remote.fanout import fan_out
from pdctl.remote.journal import Journal

CANARY = 120.0
Belongs = Callable[[dict[str, Any]], bool]


def proof_steps(
    ctx: Context, units: Sequence[DesiredUnit], group: str, wait: float, routed: bool
) -> list[Step]:
    """All of `units` ready, a request over every edge among them, with `routed` one through the router."""
    steps = [ready_step(ctx, [u.unit for u in units], group, wait)] if units else []
    return steps + canary_steps(ctx, {u.name for u in units}, group, routed)


def canary_steps(ctx: Context, names: Set[str], group: str, routed: bool) -> list[Step]:
    steps = []
    for prefill, decode in ctx.fleet.edges():
        if names >= {prefill.name, decode.name}:
            steps.append(_edge_step(ctx, prefill, decode, group))
    for engine in ctx.fleet.engines():
        if engine.name in names and is_foreign(engine) and engine.role == "both":
            steps.append(_engine_step(ctx, engine, group))
    if routed and any(e.role != "prefill" for e in ctx.fleet.engines()):
        steps.append(_router_step(ctx, group))
    return steps


def _edge_step(ctx: Context, prefill: Engine, decode: Engine, group: str) -> Step:
    def prove() -> None:
        if knows_edges(prefill, decode):
            ctx.say(f"  answered in {edge_canary(ctx, prefill, decode, CANARY):.2f} s")
        else:
            ctx.say(f"  not asked: how {decode.kind} hands over is not known to pdctl")

    name = f"{prefill.name} -> {decode.name}"
    return Step(f"canary/{name}", "fleet", f"canary {name}", lambda: (), prove, gate=True, group=group)


def _engine_step(ctx: Context, engine: Engine, group: str) -> Step:
    def prove() -> None:
        ctx.say(f"  answered in {engine_canary(ctx, engine, CANARY):.2f} s")

    id, what = f"canary/{engine.name}", f"canary to {engine.name}"
    return Step(id, "fleet", what, lambda: (), prove, gate=True, group=group)


def _router_step(ctx: Context, group: str) -> Step:
    front = ctx.fleet.router

    def prove() -> None:
        if not is_foreign(front) and admin.state(ctx, front.url).get("admission") == "held":
            ctx.say("  not asked: admissions are held")
            return
        ctx.say(f"  answered in {router_canary(ctx, CANARY):.2f} s")

    what = "canary through the router"
    return Step(f"canary/router/{group}", "fleet", what, lambda: (), prove, gate=True, group=group)


def record_steps(
    ctx: Context, states: States, units: Sequence[DesiredUnit], author: Author, group: str, belongs: Belongs
) -> list[Step]:
    """Write down on each host what has passed; `belongs` tells which of a record's units are this group's.

    Pending also when nothing else is: what serves unrecorded has not been through its gate.
    """
    mine: dict[str, dict[str, Any]] = {host: {} for host in states.hosts}
    for unit in units:
        mine[unit.host][unit.name] = entry(unit)
    steps = []
    for host, entries in mine.items():
        state = states.hosts[host]
        if entries or any(map(belongs, _recorded(state).values())):
            steps.append(_record_step(ctx, state, entries, author, group, belongs))
    return steps


def _recorded(state: HostState) -> dict[str, Any]:
    return dict(state.newest["units"]) if state.newest else {}


def _record_step(
    ctx: Context, state: HostState, mine: dict[str, Any], author: Author, group: str, belongs: Belongs
) -> Step:
    def check() -> Sequence[str]:
        before = {n: e for n, e in _recorded(state).items() if belongs(e)}
        return [] if before == mine else [f"{state.name}: {', '.join(mine) or 'nothing'} not proved yet"]

    def write() -> None:
        others = {n: e for n, e in _recorded(state).items() if not belongs(e)}
        made = record(author, ctx.fleet, state.name, {**others, **mine})
        path = ctx.fleet.host_paths(state.name).deployment(author.id)
        ctx.transport(state.name).put(json.dumps(made, indent=1).encode(), path, 0o600)
        state.newest = made

    what = f"record what serves of {group}"
    return Step(
        f"{state.name}/record/{group}",
        state.name,
        what,
        check,
        write,
        gate=True,
        group=group,
        wave=f"record {group}",
    )


def prove_started(ctx: Context, wait: float, journal: Journal) -> None:
    """Wait for what starts just now, and prove it; nothing when nothing does."""
    hosts = list(dict.fromkeys(u.host for u in ctx.fleet.units()))
    found = fan_out(hosts, lambda host: ctx.units(host).status())
    states = [s.state for statuses in found.values() if isinstance(statuses, dict) for s in statuses.values()]
    if "activating" not in states:
        return
    units: list[Engine | Router] = list(ctx.fleet.units())
    steps = [ready_step(ctx, units, "", wait), *canary_steps(ctx, {u.name for u in units}, "", True)]
    run_plan(make_plan(steps, gates=True), journal, ctx.say)


def unready(ctx: Context, names: Set[str] | None = None) -> dict[str, str]:
    """Unit -> why it is not ready, all (or `names`) asked at once; empty when they serve."""
    units = {u.name: u for u in ctx.fleet.units() if names is None or u.name in names}
    found = fan_out(units, lambda name: not_ready(ctx, units[name]))
    return {name: str(why) for name, why in found.items() if why}
