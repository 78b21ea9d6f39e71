"""pdctl resume [RUN]"""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from pdctl.cli.session import Session, session
from pdctl.errors import ConfigError, LockedError, PdctlError
from pdctl.exits import Exit
from pdctl.flows.admission import resume
from pdctl.flows.bisect import recovery
from pdctl.flows.bisect.trial import starter
from pdctl.flows.changing import changing, fleet_lock, inputs
from pdctl.flows.co_restart.states import LOAD
from pdctl.flows.context import Context
from pdctl.flows.recovery.restore import restore
from pdctl.flows.supervise import pause
from pdctl.remote.journal import Call
from pdctl.remote.journal_read import UNFINISHED, Run, read_run
from pdctl.render.table import show_json

# Verbs that may ask before they act.
_ASK = ("deploy", "rollback", "restart", "down", "tune-timeout", "profile", "drill")


def command(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(help="A run of `pdctl history` that failed, was interrupted or died: run it again."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With a run: do not ask.")] = False,
) -> Exit:
    """Open admissions again: end the router's hold, cordons, and drains that were left behind.

    The supervisor's pause ends too, and what it had given up it may try again.

    What a drill, a tune-timeout or a bisect that died has left on the fleet is put back first.

    With a run, finish what it began: its verb runs again with its options, and what it had done stays done.
    """
    s = session(ctx)
    if run is not None:
        return _again(ctx, s, run, yes)
    with s.context() as context, changing(context, Call("resume", ("resume",))):
        done = pause.resume(context)
        try:
            drilled = restore(context)
            restored = recovery.restore(context, starter(LOAD))
            done += [*drilled.done, *restored.done, *drilled.left, *restored.left]
            done += resume(context)
        except PdctlError:
            for line in done:  # it is so, whatever could not be done after it
                context.say(line)
            raise
    if s.json:
        show_json({"schema": 1, "resumed": done})
    else:
        print("\n".join(done or ["Nothing was held."]))
    return Exit.OK


def _again(ctx: typer.Context, s: Session, id: str, yes: bool) -> Exit:
    with s.context() as context:
        fleet = context.fleet
        earlier = read_run(fleet.paths.journal, id)
        _check(context, earlier)
        asks = yes and earlier.again[0] in _ASK and "--yes" not in earlier.again
        again = [*earlier.again, *(["--yes"] if asks else [])]
        context.say(f"again: pdctl {shlex.join(again)}")
        now = inputs(fleet)
        for name in sorted({*now, *earlier.inputs}):
            if now.get(name) != earlier.inputs.get(name):
                context.say(f"{name} is not what it was in that run; what counts is how it is now")
    front = ["--fleet", str(fleet.path), *(["--json"] if s.json else []), "--resumes", id]
    code = ctx.find_root().command.main([*front, *again], prog_name="pdctl", standalone_mode=False)
    return Exit(code) if isinstance(code, int) else Exit.OK


def _check(context: Context, run: Run) -> None:
    """ConfigError for a run that has nothing left to do, LockedError for one that still does it."""
    if run.state == "running":
        # Its process cannot be seen from here; while it lives it holds the lock.
        holder = fleet_lock(context).look()
        if holder is not None and holder.run == run.id and not holder.stale:
            raise LockedError("still_running", f"Run {run.id} still goes on: {holder.words()}.")
    elif run.state not in UNFINISHED:
        raise ConfigError("ended_well", f"Run {run.id} is {run.state}: nothing of it is left to do.")
    if not run.again:
        raise ConfigError(
            "not_resumable",
            f"`pdctl {run.command}` is one act and cannot be resumed.",
            "Look with `pdctl status`, then run it by hand if it is still wanted.",
        )
