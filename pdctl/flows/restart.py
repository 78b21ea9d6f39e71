"""A restart as everybody does it, the verb and the supervisor: under the lock, with hooks, written down."""

from __future__ import annotations

from pdctl.exits import Exit
from pdctl.fleet.model import Cell, Engine, Router
from pdctl.flows.changing import changing, doing
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.co_restart.report import CoRestartReport
from pdctl.flows.context import Context
from pdctl.flows.deploy.hooks import Hooks
from pdctl.flows.deployed import refuse_undeployed
from pdctl.flows.ready import wait_ready
from pdctl.flows.standstill import standstill
from pdctl.remote.journal import Call, Journal


def co_restart_cell(
    ctx: Context, cell: Cell, drain: float | None = None, wait: float | None = None, lock_wait: float = 0.0
) -> CoRestartReport:
    """`drain` and `wait` as in co_restart.run; LockedError when the fleet cannot be had."""
    given = (("--drain", drain), ("--wait", wait))
    within = [word for name, value in given if value is not None for word in (name, f"{value:g}")]
    call = Call(f"restart --co {cell.name}", ("restart", "--co", cell.name, "--yes", *within))
    with changing(ctx, call, lock_wait) as journal:
        return co_restart_now(ctx, journal, cell, drain, wait)


def co_restart_now(
    ctx: Context, journal: Journal, cell: Cell, drain: float | None = None, wait: float | None = None
) -> CoRestartReport:
    """The same within a run that holds the fleet. ConfigError for a cell that no deploy has put there."""
    refuse_undeployed(ctx, cell.engines)
    hooks = Hooks(ctx, list(dict.fromkeys(e.host for e in cell.engines)))
    hooks.before("co-restart", PDCTL_CELL=cell.name)
    report = co_restart.run(ctx, cell.name, ctx.say, drain, wait)
    hooks.after("co-restart", "done" if report.ok else "failed", PDCTL_CELL=cell.name)
    journal.note("co-restart", report=report.document())
    if not report.ok:
        machine = report.cells[-1].machine
        state = "interrupted" if report.exit is Exit.INTERRUPTED else "failed"
        why = f"{machine.at}: {machine.reason or machine.event}" if machine.at else "no router runs"
        journal.ends(state, why)
    return report


def restart_unit(ctx: Context, unit: Engine | Router, wait: float, lock_wait: float = 0.0) -> None:
    """One unit alone, until it is ready; PdctlError when it does not become so."""
    call = Call(f"restart {unit.name}", ("restart", unit.name, "--yes", "--wait", f"{wait:g}"))
    with changing(ctx, call, lock_wait):
        restart_unit_now(ctx, unit, wait)


def restart_unit_now(ctx: Context, unit: Engine | Router, wait: float) -> None:
    """The same within a run that holds the fleet. ConfigError for a unit that no deploy has put there."""
    refuse_undeployed(ctx, [unit])
    what = f"restart {unit.name}"
    ctx.say(f"restarting {unit.name}")
    units, still = ctx.units_of(unit), "" if isinstance(unit, Router) else standstill(ctx, unit)
    with doing(ctx, what.replace(" ", "/"), unit.host, what):
        if still:
            ctx.say(f"{still}: it is not drained, and ended at once")
            units.stop(unit.name, at_once=True)
            units.start(unit.name)
        else:
            units.restart(unit.name)
    with doing(ctx, f"ready/{unit.name}", unit.host, "wait until it is ready", changes=False):
        wait_ready(ctx, [unit], wait)
