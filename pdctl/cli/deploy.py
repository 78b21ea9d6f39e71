"""pdctl deploy"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any

import typer

from pdctl.cli.session import LockWait, confirm, session
from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.changing import changing
from pdctl.flows.deploy.gate import prove_started, unready
from pdctl.flows.deploy.planning import Deploy, plan_deploy
from pdctl.flows.deploy.result import DeployFailed, Outcome
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.recovery.before import refuse_half_done, undo_first, undone_first
from pdctl.remote.journal import Call, Journal
from pdctl.render.plan import counted, show_notes, show_outcome, show_plan
from pdctl.render.table import show_json

Limit = Annotated[
    list[str],
    typer.Option(
        "--limit", metavar="CELL|HOST", help="Only this cell, or the cells on this host; may be repeated."
    ),
]
ShowPlan = Annotated[bool, typer.Option("--plan", help="Show what would change and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before restarting engines.")]
Detailed = Annotated[
    bool, typer.Option("--detailed-exitcode", help="With --plan: exit 8 when changes are pending.")
]
Check = Annotated[
    bool, typer.Option("--check/--no-check", help="Preflight of each cell before anything is switched.")
]
Wait = Annotated[float, typer.Option(min=0, help="Deadline of each wait for readiness, seconds.")]


def command(
    ctx: typer.Context,
    plan: ShowPlan = False,
    yes: Yes = False,
    detailed_exitcode: Detailed = False,
    limit: Limit = [],  # noqa: B006 - typer reads it, nobody changes it
    check: Check = True,
    wait: Wait = 600.0,
    lock_wait: LockWait = 0.0,
) -> Exit:
    """Bring the fleet to what its file says; a second time changes nothing and restarts nothing.

    A cell whose preflight fails stays as it is; one that fails its gate is put back to what it served before.
    A host that cannot be reached keeps its own cells from being deployed to and no others; the exit code is 4
    then.
    """
    s = session(ctx)
    with s.context() as context:
        refuse_half_done(context.fleet)
        if plan:
            made = plan_deploy(context, wait, limit=limit, check=check)
            made = replace(made, notes=(*made.notes, *undone_first(context.fleet)))
            return show_planned(made, s.json, detailed_exitcode)
        words = options(limit, check)
        again = ("deploy", "--wait", f"{wait:g}", *words, *(["--yes"] if yes else []))
        with changing(context, Call(" ".join(["deploy", *words]), again), lock_wait) as journal:
            begin = time.monotonic()
            undo_first(context)
            made = plan_deploy(context, wait, limit=limit, check=check)
            return carry_out(made, journal, s.json, yes, begin)


def options(limit: list[str], check: bool) -> list[str]:
    """The words that say the same on another command line."""
    return [word for name in limit for word in ("--limit", name)] + ([] if check else ["--no-check"])


def show_planned(deploy: Deploy, as_json: bool, detailed: bool) -> Exit:
    """A host that takes no part makes the plan a part of the truth: 4."""
    if as_json:
        broken = {host: error.document() for host, error in deploy.broken.items()}
        show_json(_document(deploy) | {"applied": False, "broken": broken, "notes": list(deploy.notes)})
    else:
        show_plan(deploy.plan, broken=deploy.broken)
        show_notes(deploy.notes)
    if deploy.broken:
        return Exit.PARTIAL
    return Exit.CHANGES if deploy.plan.changes and detailed else Exit.OK


def carry_out(deploy: Deploy, journal: Journal, as_json: bool, yes: bool, begin: float) -> Exit:
    """Ask, apply, show. What went wrong is raised after the tables of what is true; JSON has both in one."""
    _ask(deploy, as_json, yes)
    try:
        outcome = apply_deploy(deploy, journal)
    except DeployFailed as error:
        if not as_json:
            show_outcome(error.outcome, changed=True)
            raise
        journal.ends("failed", error.message)
        _show(deploy, error.outcome, as_json, begin, error)
        return error.exit
    if not deploy.plan.pending:
        _prove(deploy, journal)
    _show(deploy, outcome, as_json, begin, None)
    return Exit.OK


def _ask(deploy: Deploy, as_json: bool, yes: bool) -> None:
    restarts = [p for p in deploy.plan.pending if p.step.describe.startswith("restart")]
    if restarts:
        if not (as_json or yes):
            show_plan(deploy.plan, broken=deploy.broken)
        what = "; ".join(p.step.describe for p in restarts)
        confirm(f"This will {what}. Go on?", yes)


def _show(deploy: Deploy, outcome: Outcome, as_json: bool, begin: float, error: PdctlError | None) -> None:
    seconds = time.monotonic() - begin
    url = deploy.ctx.fleet.router.url
    if as_json:
        about = {"applied": True, "seconds": round(seconds, 3), "router": url, **outcome.document()}
        show_json(_document(deploy) | about | ({"error": error.document()} if error else {}))
        return
    show_plan(deploy.plan, applied=True)
    show_outcome(outcome, changed=deploy.plan.changes > 0)
    print(f"{counted(deploy.plan)} in {seconds:.1f} s; {_front(deploy)}")


def _front(deploy: Deploy) -> str:
    """What of the router is true at the end, which a limited deploy may have left alone."""
    router = deploy.ctx.fleet.router
    if router.kind == "none":
        return "no router in the fleet file"
    if not deploy.states.hosts[router.host].runs(router.name):
        return f"{router.name} does not run, so nothing is served until `pdctl deploy --limit {router.name}`"
    return f"the router serves at {router.url}"


def _document(deploy: Deploy) -> dict[str, Any]:
    return {"schema": 1, "changes": deploy.plan.changes, "steps": deploy.plan.document()}


def _prove(deploy: Deploy, journal: Journal) -> None:
    """Nothing had to be changed; it must serve all the same."""
    names = {u.name for g in deploy.groups for u in g.units}
    bad = unready(deploy.ctx, names)
    if bad:
        prove_started(deploy.ctx, deploy.ways.wait, journal)
        bad = unready(deploy.ctx, names)
    if bad:
        raise PdctlError(
            "unhealthy",
            "Nothing had to be changed, but not everything is ready.",
            "Run `pdctl diagnose` for the cause.",
            exit=Exit.FINDINGS,
            details=[f"{name}: {why}" for name, why in bad.items()],
        )
