"""Bring a fleet to what its files say, as a step of another run: values that are read at start alone."""

from __future__ import annotations

from pdctl.flows.context import Context
from pdctl.flows.deploy.planning import Deploy, plan_deploy
from pdctl.flows.deploy.run import apply_deploy
from pdctl.flows.foreign import START
from pdctl.remote.journal import Journal


def pending(ctx: Context) -> Deploy:
    """What a deploy would do now; nothing is changed."""
    return plan_deploy(ctx, START, check=False)


def redeploy(ctx: Context) -> int:
    """Deploy; how many changes that took. DeployFailed when not all of it could be done."""
    made = pending(ctx)
    if not made.plan.changes:
        return 0
    if ctx.journal is not None:
        apply_deploy(made, ctx.journal)
        return made.plan.changes
    with Journal(ctx.fleet.paths.journal, "put back") as journal:
        apply_deploy(made, journal)
    return made.plan.changes
