"""Pause the supervisor and end its pause: a word on the control host, which it asks before it acts."""

from __future__ import annotations

from pdctl.flows.changing import audit_of, fleet_lock
from pdctl.flows.context import Context
from pdctl.flows.supervise.switch import lease_of, pause_of
from pdctl.flows.waiting import until
from pdctl.remote.lock import Holder
from pdctl.remote.operator import me
from pdctl.remote.pause import Pause

# A co-restart with a large model takes its time.
LONGEST = 7200.0


def pause(ctx: Context, reason: str, seconds: float | None, wait: bool) -> tuple[Pause, str]:
    """The pause, and what the supervisor is still at, "" for nothing. DeadlineError with `wait` only.

    The supervisor asks under the fleet's lock, so what it has not begun by now it does not begin.
    """
    paused = pause_of(ctx).pause(me().name, reason, seconds)
    _audit(ctx, f"paused the supervisor{': ' + reason if reason else ''}")
    if wait:
        until(lambda: _acting(ctx), LONGEST, 1.0)
    return paused, _acting(ctx)


def resume(ctx: Context) -> list[str]:
    """End the pause; what was ended, as sentences. What the supervisor had given up it may try again."""
    was = pause_of(ctx).resume()
    if was:
        _audit(ctx, "ended the supervisor's pause")
    return ["the supervisor acts again"] if was else []


def _acting(ctx: Context) -> str:
    """The run of the supervisor that holds the fleet now, as words."""
    holder, supervisor = fleet_lock(ctx).look(), lease_of(ctx).look()
    if holder is None or supervisor is None or holder.stale:
        return ""
    return holder.words() if _process(holder) == _process(supervisor) else ""


def _process(holder: Holder) -> tuple[str, str, int]:
    return holder.host, holder.machine, holder.pid


def _audit(ctx: Context, what: str) -> None:
    audit = audit_of(ctx, "pause", "")
    audit.write(ctx.fleet.control, "pause", what, "done")
    audit.close()
