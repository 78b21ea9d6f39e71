"""Bring a fleet to what its file says: release, env files, units, starts in order, proof that it serves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.model import Engine, Host, Router
from pdctl.flows import co_restart
from pdctl.flows.canary import edge_canary, router_canary
from pdctl.flows.context import Context
from pdctl.flows.deploy_files import file_steps
from pdctl.flows.deploy_units import UnitStates, removal_steps, start_steps, timeout_step
from pdctl.flows.desired import DesiredUnit, desired_unit
from pdctl.flows.ready import not_ready, wait_ready
from pdctl.plan.step import Plan, Step, make_plan, run_plan
from pdctl.release.build import Release, build_release, package_files
from pdctl.release.host import HostReleases
from pdctl.remote.fanout import fan_out
from pdctl.remote.journal import Journal
from pdctl.transport.command import Command

CoRestart = Callable[[Context, str], None]
CANARY = 120.0


@dataclass(frozen=True)
class Deploy:
    """A plan made and not yet applied, with what it was made for."""

    ctx: Context
    plan: Plan
    units: tuple[DesiredUnit, ...]


def engine_python(host: Host) -> str:
    """The interpreter of engines on a host: the fleet file's, else this one."""
    return host.spec.python or sys.executable


def restart_cell(ctx: Context, cell: str) -> None:
    """Co-restart as a deploy step: what went wrong is raised."""
    report = co_restart.run(ctx, cell, ctx.say)
    if not report.ok:
        last = report.cells[-1]
        raise PdctlError(
            "co_restart_failed",
            f"Cell {cell} was not restarted: {last.machine.reason}",
            f"Next: {last.next}" if last.next else "",
            exit=report.exit,
            details=last.true_now,
        )


def plan_deploy(ctx: Context, wait: float, restart: CoRestart = restart_cell) -> Deploy:
    """Look at every host and change nothing.

    `wait` is the deadline of each wait for readiness, seconds; `restart` is for a whole cell.
    """
    fleet = ctx.fleet
    _check_manageable(ctx)
    files = package_files()
    hosts = list(dict.fromkeys(u.host for u in fleet.units()))
    tools = {h: _releases(ctx, h) for h in hosts}
    releases = {h: build_release(files, tool.runtime()) for h, tool in tools.items()}
    units = tuple(desired_unit(fleet, u, releases[u.host]) for u in fleet.units())
    states = UnitStates(ctx)
    steps: list[Step] = []
    for host in hosts:
        mine = [u for u in units if u.unit.host == host]
        steps += release_steps(tools[host], releases[host], host)
        steps += file_steps(ctx, host, mine)
        steps += removal_steps(ctx, states, host, [u.name for u in mine])
    steps += start_steps(ctx, states, units, restart, wait)
    steps += [timeout_step(ctx, states, u) for u in units]
    if any(states.difference(u) for u in units):
        steps += proof_steps(ctx, wait)
    steps += [prune_step(ctx, tools[h], h) for h in hosts]
    return Deploy(ctx, make_plan(steps), units)


def apply_deploy(deploy: Deploy, journal: Journal) -> None:
    run_plan(deploy.plan, journal, deploy.ctx.say)


def prove_started(ctx: Context, wait: float, journal: Journal) -> None:
    """Finish a deploy that ended before its units were ready; nothing when none of them still starts."""
    hosts = list(dict.fromkeys(u.host for u in ctx.fleet.units()))
    states = [status.state for host in hosts for status in ctx.units(host).status().values()]
    if "activating" in states:
        run_plan(make_plan(proof_steps(ctx, wait), gates=True), journal, ctx.say)


def unready(ctx: Context) -> dict[str, str]:
    """Unit -> why it is not ready, asked of all at once; empty when the fleet serves."""
    units = {u.name: u for u in ctx.fleet.units()}
    found = fan_out(units, lambda name: not_ready(ctx, units[name]))
    return {name: str(why) for name, why in found.items() if why}


def _releases(ctx: Context, host: str) -> HostReleases:
    python = engine_python(ctx.fleet.hosts[host])
    return HostReleases(ctx.transport(host), ctx.fleet.host_paths(host), python)


def _check_manageable(ctx: Context) -> None:
    """Engines of other kinds are watched, not installed; the model must be on every host."""
    fleet = ctx.fleet
    for unit in fleet.units():
        if unit.kind != "bundled":
            raise ConfigError(
                "not_managed",
                f"{unit.name} is of kind {unit.kind}, which pdctl watches and does not deploy.",
            )
    for host in dict.fromkeys(e.host for e in fleet.engines()):
        found = ctx.transport(host).run(Command(("test", "-e", fleet.model.path)), 10.0)
        if found.rc != 0:
            raise ConfigError(
                "no_model",
                f"model.path: there is no {fleet.model.path} on {host}.",
                "Fetch it with `pdctl model pull`, or correct the path in the fleet file.",
            )


def release_steps(tool: HostReleases, release: Release, host: str) -> list[Step]:
    def missing() -> Sequence[str]:
        return () if release.id in tool.state()[0] else [f"release {release.id} is not installed"]

    def not_current() -> Sequence[str]:
        current = tool.state()[1]
        return () if current == release.id else [f"current: {current or 'none'} -> {release.id}"]

    size = sum(map(len, release.files.values())) // 1024
    what = f"install release {release.id} ({len(release.files)} files, {size} KiB)"
    return [
        Step(f"{host}/release", host, what, missing, lambda: tool.install(release)),
        Step(
            f"{host}/current",
            host,
            f"make release {release.id} the current one",
            not_current,
            lambda: tool.activate(release.id),
        ),
    ]


def prune_step(ctx: Context, tool: HostReleases, host: str) -> Step:
    """Old releases go after everything has been proved; what a unit still runs from stays."""

    def prune() -> None:
        units = ctx.units(host)
        specs = [units.installed(name) for name in units.status()]
        used = [s.cwd.rpartition("/")[2] for s in specs if s is not None]
        tool.prune(ctx.fleet.spec.fleet.retain, used)

    keep = ctx.fleet.spec.fleet.retain
    return Step(f"{host}/prune", host, f"keep {keep} older releases", lambda: (), prune, gate=True)


def proof_steps(ctx: Context, wait: float) -> list[Step]:
    """Everything ready, then a real request over every edge and one through the router."""
    fleet = ctx.fleet
    units: list[Engine | Router] = list(fleet.units())
    steps = [
        Step(
            "ready",
            "fleet",
            f"wait until all {len(units)} units are ready",
            lambda: (),
            lambda: wait_ready(ctx, units, wait),
            gate=True,
        )
    ]
    for prefill, decode in fleet.edges():

        def over_edge(p: Engine = prefill, d: Engine = decode) -> None:
            ctx.say(f"  answered in {edge_canary(ctx, p, d, CANARY):.2f} s")

        name = f"{prefill.name} -> {decode.name}"
        steps.append(Step(f"canary/{name}", "fleet", f"canary {name}", lambda: (), over_edge, gate=True))
    if fleet.edges():
        steps.append(
            Step(
                "canary/router",
                "fleet",
                "canary through the router",
                lambda: (),
                lambda: ctx.say(f"  answered in {router_canary(ctx, CANARY):.2f} s"),
                gate=True,
            )
        )
    return steps
