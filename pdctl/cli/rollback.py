"""pdctl rollback"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pdctl.cli.deploy import Check, Detailed, Limit, ShowPlan, Wait, Yes, carry_out, options, show_planned
from pdctl.cli.session import LockWait, session
from pdctl.exits import Exit
from pdctl.flows.changing import changing
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Deployment
from pdctl.flows.deploy.kept import list_deployments
from pdctl.flows.deploy.rollback import plan_rollback
from pdctl.flows.recovery.before import undo_first
from pdctl.remote.journal import Call
from pdctl.render.table import show_json, show_table


def command(
    ctx: typer.Context,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A deployment; the one before when left out.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the deployments that can be gone back to.")
    ] = False,
    plan: ShowPlan = False,
    yes: Yes = False,
    detailed_exitcode: Detailed = False,
    limit: Limit = [],  # noqa: B006 - typer reads it, nobody changes it
    check: Check = True,
    wait: Wait = 600.0,
    lock_wait: LockWait = 0.0,
) -> Exit:
    """Go back to a deployment that has served: its release, units and values, proved like any deploy.

    The fleet file stays as it is; the next deploy brings what it says.
    """
    s = session(ctx)
    with s.context() as context:
        if listed:
            return _list(context, s.json)
        if plan:
            deploy, _ = plan_rollback(context, wait, id, limit=limit, check=check)
            return show_planned(deploy, s.json, detailed_exitcode)
        with changing(context, Call("rollback" + (f" {id}" if id else "")), lock_wait) as journal:
            begin = time.monotonic()
            undo_first(context)
            deploy, target = plan_rollback(context, wait, id, limit=limit, check=check)
            words = options(limit, check)
            journal.resumable(
                "rollback", target.id, "--wait", f"{wait:g}", *words, *(["--yes"] if yes else [])
            )
            context.say(f"going back to deployment {target.id} of {_when(target)} by {target.by}")
            return carry_out(deploy, journal, s.json, yes, begin)


def _list(context: Context, as_json: bool) -> Exit:
    found, silent = list_deployments(context)
    if as_json:
        rows = [
            {
                "id": d.id,
                "also": list(d.also),
                "serves": d.serves,
                "at": d.at,
                "by": d.by,
                "what": d.what,
                "hosts": list(d.hosts),
                "releases": d.releases,
            }
            for d in found
        ]
        show_json({"schema": 1, "deployments": rows, "silent": {h: e.document() for h, e in silent.items()}})
    elif not found:
        print("Nothing has been deployed yet.")
    else:
        table = [
            (
                "serves" if d.serves else "",
                d.id,
                _when(d),
                d.by,
                d.what,
                ", ".join(d.hosts),
                ", ".join(d.releases),
            )
            for d in found
        ]
        show_table(("", "deployment", "when", "by", "what", "hosts", "releases"), table)
    for host, error in silent.items():
        context.say(f"{host} was not asked: {error.message}")
    return Exit.PARTIAL if silent else Exit.OK


def _when(deployment: Deployment) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(deployment.at))
