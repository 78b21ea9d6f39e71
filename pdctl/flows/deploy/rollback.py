"""Back to a deployment that has served: a deploy whose wish is not the fleet file but what hosts recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.names import nearest
from pdctl.flows.context import Context
from pdctl.flows.deploy.back import last_good
from pdctl.flows.deploy.deployment import Deployment, deployments, fleet_of, lost, wanted
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.deploy.files import token_steps
from pdctl.flows.deploy.group import Group, Ways, groups_of
from pdctl.flows.deploy.hooks import Hooks
from pdctl.flows.deploy.kept import records_of
from pdctl.flows.deploy.look import States, look_at
from pdctl.flows.deploy.planning import SWITCH, Deploy, author, make_deploy, restart_cell, usable
from pdctl.flows.deploy.release import current_step
from pdctl.flows.deploy.scope import chosen, strangers, with_router
from pdctl.flows.deploy.starts import CoRestart
from pdctl.plan.step import Plan, Step, make_plan


def plan_rollback(
    ctx: Context,
    wait: float,
    id: str | None = None,
    restart: CoRestart | None = None,
    limit: Sequence[str] = (),
    check: bool = True,
) -> tuple[Deploy, Deployment]:
    """To deployment `id`, else to the newest that differs from what serves. Changes nothing.

    ConfigError when there is no such deployment; UnreachableError when a host of what goes back is silent.
    """
    records, silent = records_of(ctx)
    known = deployments(records, silent)
    states = look_at(ctx, ctx.fleet.hosts)
    now = last_good(states)
    target = _target(known, now, id, lost(records, silent))
    there = replace(ctx, fleet=fleet_of(ctx.fleet, target))
    units = {name: wanted(name, entry) for name, entry in target.units()}
    groups = chosen(there.fleet, every := groups_of(there.fleet, units), limit)
    for group in groups:
        _reach(ctx, states, group)
    new = strangers(states, groups, every)
    groups = with_router(groups, every) if new else groups
    hooks = Hooks(there, list(there.fleet.hosts))
    ways = Ways(
        author(ctx, states, f"rollback to {target.id}"),
        wait,
        hooks.around(restart or partial(restart_cell, wait=wait)),
        check,
    )
    states = States(there, states.hosts, states.down)
    broken = _gone(states, list(units.values()))
    deploy = Deploy(there, Plan(()), units, tuple(groups), states, ways, broken, hooks, "rollback")
    deploy = replace(deploy, notes=tuple(new))
    deploy = make_deploy(deploy, make_plan(_switch(deploy)))
    if now is not None and target.same(now) and not deploy.plan.changes:
        said = f"Deployment {id or target.id} is what serves already."
        deploy = replace(deploy, notes=(*deploy.notes, said))
    return deploy, target


def _target(
    known: Sequence[Deployment], now: Deployment | None, id: str | None, gone: Mapping[str, Sequence[str]]
) -> Deployment:
    """`gone` are deployments that hosts lack a record of."""
    retain = "`pdctl rollback --list` shows those that hosts keep; `retain` under [fleet] says how many."
    if id is not None and id in gone:
        what = f"Deployment {id} cannot be told any more: its record on {', '.join(gone[id])} is gone."
        raise ConfigError("no_deployment", what, retain)
    if id is not None:
        for each in known:
            if id in each.ids:
                return each
        names = [name for d in known for name in d.ids]
        # It may have been one: a run's history names it long after hosts have let go of it.
        hint = f"{nearest(id, names)} {retain}" if known else "Nothing has been deployed yet."
        raise ConfigError("no_deployment", f"There is no deployment {id}.", hint)
    for each in known:
        if now is None or not each.same(now):
            return each
    raise ConfigError("no_deployment", "There is no earlier deployment to go back to.", retain)


def _reach(ctx: Context, states: States, group: Group) -> None:
    """A silent host's records are not known, so neither is what its cells were."""
    cell = ctx.fleet.cells.get(group.name) if group.kind == "cell" else None
    hosts = {*group.hosts, *(e.host for e in (cell.engines if cell else ()))}
    if group.kind == "left":
        hosts = set(ctx.fleet.hosts)
    for host, error in states.down.items():
        if host in hosts:
            hint = "Name the cells that can go back with --limit."
            raise PdctlError(error.code, error.message, hint, error.exit, error.details)


def _gone(states: States, units: Sequence[DesiredUnit]) -> dict[str, PdctlError]:
    broken = dict(states.down)
    for unit in units:
        if unit.host in broken or not unit.release:
            continue
        if unit.release not in states.hosts[unit.host].installed.releases:
            broken[unit.host] = ConfigError(
                "release_gone", f"Release {unit.release} is not on {unit.host} any more."
            )
    return broken


def _switch(deploy: Deploy) -> list[Step]:
    steps: list[Step] = []
    for state in usable(deploy, deploy.groups):
        releases = [u.release for u in deploy.units.values() if u.host == state.name and u.release]
        if releases:
            steps.append(current_step(state, releases[0], SWITCH, SWITCH))
        steps += token_steps(deploy.ctx, state, SWITCH, SWITCH)
    return steps
