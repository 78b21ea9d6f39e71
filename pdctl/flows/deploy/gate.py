"""The gate of a deploy: readiness, real requests with their bodies checked, and the record of what passed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
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
    ctx: Context,
    states: States,
    units: Sequence[DesiredUnit],
    author: Author,
    group: str,
    belongs: Belongs,
    back: bool = False,
) -> list[Step]:
    """Write down on each host what has passed; `belongs` tells which of a record's units are this group's.

    Pending also when nothing else is: what serves unrecorded has not been through its gate. All hosts of a
    group are recorded when one has to be; where a group was put `back`, only those that this run changed.
    """
    mine: dict[str, dict[str, Any]] = {host: {} for host in states.hosts}
    for unit in units:
        mine[unit.host][unit.name] = entry(unit)
    there = {h: e for h, e in mine.items() if e or any(map(belongs, _recorded(states.hosts[h]).values()))}
    pending = any(_unproved(states, h, e, belongs) for h, e in there.items())

    def anew(state: HostState) -> bool:
        return _of(state, author) if back else pending

    return [
        _record_step(
            states.hosts[host],
            group,
            ", ".join(entries) or "nothing",
            partial(_unproved, states, host, entries, belongs),
            partial(_record, ctx, states, states.hosts[host], mine, author, belongs),
            anew(states.hosts[host]),
        )
        for host, entries in there.items()
    ]


def _of(state: HostState, author: Author) -> bool:
    return state.newest is not None and state.newest["id"] == author.id


def _unproved(states: States, host: str, mine: dict[str, Any], belongs: Belongs) -> bool:
    """Also what a run that was cut off has recorded on another host and not on this one."""
    state = states.hosts[host]
    if {n: e for n, e in _recorded(state).items() if belongs(e)} != mine:
        return True
    serial = state.newest["serial"] if state.newest else 0
    others = [o.newest for o in states.hosts.values() if o.newest and o.newest["serial"] > serial]
    return any(o.get("beside", {}).get(host) == o["id"] for o in others)


def _recorded(state: HostState) -> dict[str, Any]:
    return dict(state.newest["units"]) if state.newest else {}


def _after(state: HostState, mine: dict[str, Any], belongs: Belongs) -> dict[str, Any]:
    return {n: e for n, e in _recorded(state).items() if not belongs(e)} | mine


def _record(
    ctx: Context,
    states: States,
    state: HostState,
    mine: Mapping[str, dict[str, Any]],
    author: Author,
    belongs: Belongs,
) -> None:
    """With what is, or is just about to be, recorded beside it."""
    beside = {}
    for name, other in states.hosts.items():
        units = _after(other, mine[name], belongs)
        if units:
            same = other.newest is not None and other.newest["units"] == units
            beside[name] = other.newest["id"] if same and other.newest else author.id
    units = _after(state, mine[state.name], belongs)
    made = record(author, ctx.fleet, state.name, units, state.newest, beside)
    path = ctx.fleet.host_paths(state.name).deployment(author.id)
    ctx.transport(state.name).put(json.dumps(made, indent=1).encode(), path, 0o600)
    state.newest = made


def _record_step(
    state: HostState,
    group: str,
    names: str,
    unproved: Callable[[], bool],
    write: Callable[[], None],
    anew: bool,
) -> Step:
    def check() -> Sequence[str]:
        return [f"{state.name}: {names} not proved yet"] if unproved() else []

    def apply() -> None:
        # A repair brings what is recorded already, and that keeps its id.
        if anew or unproved():
            write()

    what = f"record what serves of {group}"
    return Step(
        f"{state.name}/record/{group}",
        state.name,
        what,
        check,
        apply,
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
