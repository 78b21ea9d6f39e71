"""Plan a deploy: what every host and cell of a fleet lacks to be what its file says."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.facts.missing import Missing
from pdctl.fleet.model import Fleet
from pdctl.fleet.order import refuse_disorder
from pdctl.fleet.place import place
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.context import Context
from pdctl.flows.deploy import places
from pdctl.flows.deploy.deployment import Author, new_id
from pdctl.flows.deploy.desired import DesiredUnit, desired_unit
from pdctl.flows.deploy.files import token_steps
from pdctl.flows.deploy.group import Group, Ways, group_steps, groups_of
from pdctl.flows.deploy.hooks import Hooks
from pdctl.flows.deploy.kept import Retention
from pdctl.flows.deploy.look import HostState, States, look_at
from pdctl.flows.deploy.preflight import PREFLIGHT, Preflight, wants_check
from pdctl.flows.deploy.release import (
    INSTALL,
    HostRelease,
    current_step,
    install_steps,
    linger_step,
    release_for,
    root_step,
)
from pdctl.flows.deploy.scope import chosen, strangers, with_router
from pdctl.flows.deploy.starts import CoRestart
from pdctl.flows.deploy.supervisor import supervisor_steps
from pdctl.flows.foreign import is_foreign
from pdctl.plan.step import Plan, Step, joined, make_plan
from pdctl.release.build import package_files
from pdctl.release.lock import Lock, engine_lock
from pdctl.remote.operator import me

SWITCH = "switch"
PRUNE = "prune"
SUPERVISOR = "supervisor"


@dataclass(frozen=True)
class Deploy:
    """A plan made and not yet applied, with what it was made for.

    `units` are what is wanted by name; `groups` are those in scope, in order; `broken` says why a host
    takes no part, `notes` what else is to be known.
    """

    ctx: Context
    plan: Plan
    units: dict[str, DesiredUnit]
    groups: tuple[Group, ...]
    states: States
    ways: Ways
    broken: dict[str, PdctlError]
    hooks: Hooks
    verb: str = "deploy"
    notes: tuple[str, ...] = ()


def restart_cell(ctx: Context, cell: str, wait: float) -> None:
    """Co-restart as a deploy step, `wait` seconds for each engine to start: what went wrong is raised."""
    report = co_restart.run(ctx, cell, ctx.say, wait=wait)
    if not report.done:
        last = report.cells[-1]
        following = last.next
        if ctx.journal is not None and report.exit is Exit.INTERRUPTED:
            # Not the cell alone: this run has more to do, and what its hosts lack is known to it.
            following = f"pdctl resume {ctx.journal.id}"
        raise PdctlError(
            "co_restart_failed",
            f"Cell {cell} did not come through its restart: {last.machine.reason or last.machine.event}",
            f"Next: {following}" if following else "",
            exit=report.exit,
            details=last.true_now,
        )


def plan_deploy(
    ctx: Context,
    wait: float,
    restart: CoRestart | None = None,
    limit: Sequence[str] = (),
    check: bool = True,
) -> Deploy:
    """Look at every host and change nothing.

    `wait` is the deadline of each wait for readiness, seconds; `restart` is what a whole cell is
    restarted by; `limit` names cells and hosts that alone are deployed to; `check`: with a preflight.
    Raises when there is nothing left that could be deployed to.
    """
    fleet = ctx.fleet
    refuse_disorder(fleet)
    scope = chosen(fleet, groups_of(fleet, {}), limit)
    near = {fleet.router.host, *(h for g in scope for h in g.hosts)}
    states = look_at(ctx, [h for h in fleet.hosts if h in near or not limit], needs_model=True)
    broken = dict(states.down) | places.moved(fleet)
    files, lock = package_files(), engine_lock()
    releases: dict[str, HostRelease] = {}
    for host in dict.fromkeys(u.host for u in fleet.units()):
        if host in states.hosts:
            try:
                _check_host(fleet, states.hosts[host])
                if any(u.kind == "bundled" for u in fleet.units() if u.host == host):
                    _check_model(ctx, states.hosts[host])
                    releases[host] = release_for(fleet, states.hosts[host], files, lock)
            except ConfigError as error:
                broken[host] = error
    made = {host: wanted.release for host, wanted in releases.items()}
    placed = [u for u in fleet.units() if u.host in states.hosts and u.host not in broken]
    units = {u.name: desired_unit(fleet, u, made.get(u.host)) for u in placed}
    groups = chosen(fleet, every := groups_of(fleet, units), limit)
    new = strangers(states, groups, every)
    hooks = Hooks(ctx, list(fleet.hosts))
    ways = Ways(
        author(ctx, states, "deploy"), wait, hooks.around(restart or partial(restart_cell, wait=wait)), check
    )
    groups = with_router(groups, every) if new else groups
    deploy = Deploy(ctx, Plan(()), units, tuple(groups), states, ways, broken, hooks)
    deploy = replace(deploy, notes=(*places.forgotten(fleet), *new))
    return make_deploy(deploy, install_plan(deploy, releases, lock))


def _check_model(ctx: Context, state: HostState) -> None:
    """ConfigError, with its place in the fleet file, for what an engine would only say when it starts."""
    model, path = state.model, ctx.fleet.model.path
    if isinstance(model, Missing):
        return
    at = f"{place(ctx.fleet, 'model', 'path')}: model.path"
    hint = "Fetch it with `pdctl model pull`, or correct the path in the fleet file."
    if not model.there:
        raise ConfigError("no_model", f"{at}: there is no {path} on {state.name}.", hint)
    if model.wrong:
        raise ConfigError("bad_model", f"{at}: {path} on {state.name} cannot be loaded: {model.wrong}.", hint)
    for engine in ctx.fleet.engines():
        if engine.host == state.name and not is_foreign(engine) and not model.serves(engine.tp):
            keys = ("cells", engine.cell, "engines", engine.name, "tp")
            raise ConfigError(
                "tp_too_large",
                f"{place(ctx.fleet, *keys)}: {'.'.join(keys)}: is {engine.tp}, and the model has "
                f"{model.parts} {model.parts_are}, which no more ranks can share.",
                f"Set it to {model.parts} or less.",
            )


def _check_host(fleet: Fleet, state: HostState) -> None:
    if state.root == "foreign":
        raise ConfigError(
            "foreign_root",
            f"{state.tool.root} on {state.name} is there and the login user may not write to it.",
            f"Give it to that user, or name another folder as hosts.{state.name}.root "
            f"({place(fleet, 'hosts', state.name, 'root')}).",
        )


def author(ctx: Context, states: States, what: str) -> Author:
    serials = [s.newest["serial"] for s in states.hosts.values() if s.newest]
    run = ctx.journal.id if ctx.journal else ""
    # Not the time alone: clocks of operators differ. Not a count: with --limit not every host was asked.
    serial = max(int(time.time()), 1 + max(serials, default=0))
    return Author(new_id(), serial, me().name, what, run)


def why_not(ctx: Context, group: Group, broken: dict[str, PdctlError]) -> tuple[str, PdctlError] | None:
    """The host that keeps `group` from being deployed to: without a router nothing is held or served."""
    router = ctx.fleet.router
    hosts = group.hosts if router.kind == "none" else (*group.hosts, router.host)
    return next(((h, broken[h]) for h in hosts if h in broken), None)


def usable(deploy: Deploy, groups: Iterable[Group]) -> list[HostState]:
    """Hosts of those of `groups` that can be deployed to."""
    well = [g for g in groups if why_not(deploy.ctx, g, deploy.broken) is None]
    names = dict.fromkeys(h for g in well for h in g.hosts)
    return [deploy.states.hosts[h] for h in names]


def install_plan(deploy: Deploy, releases: dict[str, HostRelease], lock: Lock) -> Plan:
    """Releases on all hosts at once; then, where nothing runs from it yet, what stands for a host."""
    ctx = deploy.ctx
    install: list[Step] = []
    switch: list[Step] = []
    for state in usable(deploy, deploy.groups):
        install += [linger_step(ctx, state), root_step(state)]
        if wanted := releases.get(state.name):
            install += install_steps(ctx, state, wanted, lock)
            switch.append(current_step(state, wanted.release.id, SWITCH, SWITCH))
            switch += token_steps(ctx, state, SWITCH, SWITCH)
    return joined([make_plan(install), make_plan(switch)])


def make_deploy(deploy: Deploy, before: Plan) -> Deploy:
    """`deploy` with its plan: `before` (install and switch), preflight between the two, then every group's
    own, then old things removed.

    PdctlError when no group can be deployed to.
    """
    ctx, broken = deploy.ctx, deploy.broken
    blocked = {g.key: found for g in deploy.groups if (found := why_not(ctx, g, broken))}
    if blocked and all(g.key in blocked for g in deploy.groups if g.hosts):
        raise _nothing(blocked)
    well = [g for g in deploy.groups if g.key not in blocked]
    front = _router_plan(deploy)
    # Only through a router that runs and stays as it is can a cell's gate ask.
    routed = not front.pending and deploy.states.hosts[ctx.fleet.router.host].runs(ctx.fleet.router.name)
    plans = [front if g.kind == "router" else _group_plan(deploy, g, routed and bool(g.units)) for g in well]
    wanted = [g for g, own in zip(well, plans, strict=True) if deploy.ways.check and wants_check(g, own)]
    checks = make_plan(Preflight(ctx, deploy.states, wanted).steps(), gates=True)
    plan = joined([Plan(before.of(INSTALL)), checks, Plan(before.of(SWITCH)), *plans])
    if plan.pending:
        retention = Retention(ctx)
        prune = [_prune_step(retention, state) for state in usable(deploy, deploy.groups)]
        plan = joined([plan, make_plan(prune, gates=True)])
    if _attends(deploy) and not broken:
        plan = joined([plan, make_plan(supervisor_steps(ctx, deploy.states.hosts, SUPERVISOR))])
    return replace(deploy, plan=plan, notes=(*deploy.notes, *deploy.hooks.unusable()))


def _attends(deploy: Deploy) -> bool:
    """Whether the supervisor is in scope: its host need not have a unit, and a limit leaves those out."""
    whole = any(g.kind == "left" for g in deploy.groups)
    return whole or deploy.ctx.fleet.control in {s.name for s in usable(deploy, deploy.groups)}


def _group_plan(deploy: Deploy, group: Group, routed: bool) -> Plan:
    return make_plan(group_steps(deploy.ctx, deploy.states, group, deploy.ways, routed))


def _router_plan(deploy: Deploy) -> Plan:
    """Also where the router is out of scope: whether it stays as it is matters to every cell."""
    every = groups_of(deploy.ctx.fleet, deploy.units)
    return _group_plan(deploy, next(g for g in every if g.kind == "router"), True)


def _nothing(blocked: Mapping[str, tuple[str, PdctlError]]) -> PdctlError:
    """What keeps every group back, with what is wrong on further hosts."""
    errors = dict(blocked.values())
    error, *_ = errors.values()
    more = [f"{host}: {other.message}" for host, other in errors.items() if other is not error]
    return PdctlError(error.code, error.message, error.hint, error.exit, [*error.details, *more])


def _prune_step(retention: Retention, state: HostState) -> Step:
    """Old releases go after everything has been proved."""

    def prune() -> None:
        state.installed = state.tool.prune(retention.oldest())

    what = f"keep {retention.keep} older deployments"
    return Step(f"{state.name}/prune", state.name, what, lambda: (), prune, True, PRUNE, PRUNE)


__all__ = [
    "INSTALL",
    "PREFLIGHT",
    "PRUNE",
    "SUPERVISOR",
    "SWITCH",
    "Deploy",
    "DesiredUnit",
    "plan_deploy",
    "restart_cell",
]
