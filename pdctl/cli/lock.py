"""pdctl lock status|take|release"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any

import typer

from pdctl.cli.session import confirm, session
from pdctl.errors import ConfigError, LockedError
from pdctl.exits import Exit
from pdctl.flows.changing import audit_of, fleet_lock
from pdctl.flows.context import Context
from pdctl.remote.lock import Holder, holder_for, span
from pdctl.remote.operator import me
from pdctl.render.table import show_json

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="One run at a time changes a fleet: who holds it, hold it by hand, release it.",
)


@app.command()
def status(ctx: typer.Context) -> Exit:
    """Who holds the fleet, since when, and whether that run lives. Exit 6 when a run would have to wait."""
    s = session(ctx)
    with s.context() as context:
        holder = fleet_lock(context).look()
        control = context.fleet.control
    state = _state(holder)
    if s.json:
        show_json({"schema": 1, "control": control, "state": state, "holder": _document(holder)})
    elif holder is None:
        print(f"free; the lock of this fleet is on {control}")
    else:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
        beat = "" if holder.manual else f"; last heartbeat {span(holder.age)} ago"
        print(f"{state}: held by {holder.words()} (since {since}){beat}")
    return Exit.LOCKED if state in ("live", "manual") else Exit.OK


@app.command()
def take(
    ctx: typer.Context,
    reason: Annotated[str, typer.Option(help="Why; whoever meets the lock is told.")],
) -> None:
    """Hold the fleet by hand: no run changes it until `pdctl lock release`."""
    if not reason.strip():
        raise ConfigError("no_reason", "A lock by hand needs a reason.", 'Pass --reason "…".')
    s = session(ctx)
    with s.context() as context:
        mine = holder_for(me(), secrets.token_hex(8), "pdctl lock take", reason=reason.strip())
        over = fleet_lock(context).take(mine)
        if over is not None:
            context.say(f"took over the lock of a run that is dead: {over.words()}")
        _audit(context, f"took the lock by hand: {mine.reason}", over)
    if s.json:
        show_json({"schema": 1, "taken": mine.id, "over": _document(over)})
    else:
        print(f"{context.fleet.name} is yours until `pdctl lock release`")


@app.command()
def release(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Also a living run's or another person's.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --force: do not ask.")] = False,
) -> None:
    """Release your own lock by hand, or that of a run that is dead; anything else only with --force."""
    s = session(ctx)
    with s.context() as context:
        lock = fleet_lock(context)
        holder = lock.look()
        if holder is not None:
            forced = not holder.stale and not (holder.manual and _yours(holder))
            if forced and not force:
                hint = "Ask them; `pdctl lock release --force` takes it from them all the same."
                raise LockedError("locked", f"The fleet is held by {holder.words()}.", hint)
            if forced:
                confirm(f"{_risk(holder)} Release it?", yes)
            if not lock.release(holder.id):
                hint = "Look at `pdctl lock status`."
                raise LockedError("lock_changed", "The lock changed hands meanwhile.", hint)
            _audit(context, f"released{' by force' if forced else ''}: {holder.words()}", None)
    if s.json:
        show_json({"schema": 1, "released": _document(holder)})
    else:
        print(f"released; it was held by {holder.words()}" if holder else "nobody held it")


def _yours(holder: Holder) -> bool:
    """Also after a reboot of this machine."""
    here = me()
    return (holder.owner, holder.host) == (here.owner, here.host)


def _risk(holder: Holder) -> str:
    if holder.manual:
        return f"{holder.words()}. They count on nobody changing the fleet."
    return f"{holder.words()}. That run stops before its next step and leaves the fleet as it is then."


def _state(holder: Holder | None) -> str:
    if holder is None:
        return "free"
    return "manual" if holder.manual else "stale" if holder.stale else "live"


def _document(holder: Holder | None) -> dict[str, Any] | None:
    if holder is None:
        return None
    keys = ("owner", "host", "pid", "since", "command", "run", "kind", "reason")
    return {k: getattr(holder, k) for k in keys} | {
        "state": _state(holder),
        "heartbeat_age_s": None if holder.manual else round(holder.age, 1),
        "held_s": round(holder.held, 1),
    }


def _audit(context: Context, what: str, over: Holder | None) -> None:
    audit = audit_of(context, "lock", "")
    if over is not None:
        audit.write(context.fleet.control, "lock", f"took over a dead run's lock: {over.words()}", "done")
    audit.write(context.fleet.control, "lock", what, "done")
    audit.close()
