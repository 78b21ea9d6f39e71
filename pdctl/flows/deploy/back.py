"""Put a group back to what was recorded as serving: the same steps as a deploy, with the record as target."""

from __future__ import annotations

from dataclasses import replace

from pdctl.errors import PdctlError
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Deployment, entry, fleet_of, serving, wanted
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.deploy.group import Group, Ways, group_steps
from pdctl.flows.deploy.look import States
from pdctl.flows.ready import observed
from pdctl.plan.run import run_steps
from pdctl.plan.step import make_plan
from pdctl.remote.journal import Journal


class NothingBefore(PdctlError):
    """There is no other deployment to go back to; the message says why."""


def last_good(states: States) -> Deployment | None:
    return serving({name: state.newest for name, state in states.hosts.items()})


def put_back(
    ctx: Context, states: States, group: Group, ways: Ways, journal: Journal
) -> tuple[str, tuple[str, ...]]:
    """The id of the deployment that `group` serves again, proved as in a deploy, and how it looks now.

    NothingBefore when none is recorded, or what is recorded is what has just failed; another PdctlError
    when it could not be put back.
    """
    before, units = _before(ctx, states, group)
    cells = [group.name] if group.kind == "cell" else []
    there = replace(ctx, fleet=fleet_of(ctx.fleet, before, cells, router=group.kind == "router"))
    target = replace(group, units=units, hosts=tuple(dict.fromkeys(u.host for u in units)))
    ctx.say(f"{group.key}: going back to deployment {before.id}")
    routed = group.kind == "router" or _router_runs(there, states)
    plan = make_plan(group_steps(there, states, target, ways, routed, back=True), gates=True)
    for error in run_steps(plan.pending, journal, ctx.say).values():
        raise error
    return before.id, tuple(observed(there, [u.unit for u in units]))


def _before(ctx: Context, states: States, group: Group) -> tuple[Deployment, tuple[DesiredUnit, ...]]:
    # Not what this run itself has recorded since it looked.
    before = serving({name: state.found for name, state in states.hosts.items()})
    names = list(ctx.fleet.cells)
    found = {n: e for n, e in before.units() if group.recorded(e, names)} if before else {}
    if before is None or not found:
        raise NothingBefore(
            "no_deployment", "There is nothing to go back to: no deployment of it is recorded."
        )
    if found == {u.name: entry(u) for u in group.units}:
        raise NothingBefore(
            "same_deployment",
            f"There is nothing else to go back to: this is deployment {before.id}.",
        )
    units = tuple(wanted(name, e) for name, e in found.items())
    lost = [u for u in units if u.host not in states.hosts]
    if lost:
        raise PdctlError(
            "host_gone", f"{lost[0].name} was on {lost[0].host}, which cannot be reached, so it stays down."
        )
    gone = [u for u in units if u.release and u.release not in states.hosts[u.host].installed.releases]
    if gone:
        raise PdctlError("release_gone", f"Release {gone[0].release} is not on {gone[0].host} any more.")
    return before, units


def _router_runs(ctx: Context, states: States) -> bool:
    front = states.hosts.get(ctx.fleet.router.host)
    return front is not None and front.runs(ctx.fleet.router.name)
