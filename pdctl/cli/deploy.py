"""pdctl deploy"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pdctl.cli.session import confirm, session
from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.context import Context
from pdctl.flows.deploy import apply_deploy, plan_deploy, prove_started, unready
from pdctl.plan.step import Plan
from pdctl.remote.journal import Journal
from pdctl.remote.lock import fleet_lock
from pdctl.render.plan import counted, show_plan
from pdctl.render.table import show_json


def command(
    ctx: typer.Context,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would change and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before restarting engines.")] = False,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="With --plan: exit 8 when changes are pending.")
    ] = False,
    wait: Annotated[float, typer.Option(help="Deadline of each wait for readiness, seconds.")] = 600.0,
) -> Exit:
    """Bring the fleet to what its file says; a second time changes nothing and restarts nothing."""
    s = session(ctx)
    with s.context() as context:
        if plan:
            made = plan_deploy(context, wait).plan
            _show(made, s.json, None)
            return Exit.CHANGES if made.changes and detailed_exitcode else Exit.OK
        with fleet_lock(context.fleet.paths.lock, "pdctl deploy", context.say):
            return _deploy(context, s.json, yes, wait)


def _deploy(context: Context, as_json: bool, yes: bool, wait: float) -> Exit:
    begin = time.monotonic()
    deploy = plan_deploy(context, wait)
    changes = deploy.plan.changes
    if changes:
        restarts = [p for p in deploy.plan.pending if p.step.describe.startswith("restart")]
        if restarts:
            if not (as_json or yes):
                show_plan(deploy.plan)
            what = "; ".join(p.step.describe for p in restarts)
            confirm(f"This will {what}. Go on?", yes)
        with Journal(context.fleet.paths.journal, "deploy") as journal:
            apply_deploy(deploy, journal)
    bad = unready(context)
    if bad and not changes:
        with Journal(context.fleet.paths.journal, "deploy") as journal:
            prove_started(context, wait, journal)
        bad = unready(context)
    if bad and not changes:
        raise PdctlError(
            "unhealthy",
            "Nothing had to be changed, but not everything is ready.",
            "Run `pdctl diagnose` for the cause.",
            exit=Exit.FINDINGS,
            details=[f"{name}: {why}" for name, why in bad.items()],
        )
    _show(deploy.plan, as_json, time.monotonic() - begin, context.fleet.router.url)
    return Exit.OK


def _show(plan: Plan, as_json: bool, seconds: float | None, url: str = "") -> None:
    """`seconds` is None for a plan that was not applied."""
    if as_json:
        applied = seconds is not None
        document = {"schema": 1, "changes": plan.changes, "applied": applied, "steps": plan.document()}
        show_json(document | ({"seconds": round(seconds, 3), "router": url} if seconds is not None else {}))
        return
    show_plan(plan, applied=seconds is not None)
    if seconds is not None:
        print(f"{counted(plan)} in {seconds:.1f} s; the router serves at {url}")
