"""Wait until units are ready, saying what for; fail at once when one of them cannot become ready."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pdctl.errors import DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.facts.collect import unit_of
from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context
from pdctl.flows.foreign import is_foreign, unhealthy
from pdctl.flows.http import call
from pdctl.flows.last_words import last_life, last_words
from pdctl.units.spec import UnitStatus

POLL = 0.2
# Unit states are asked for less often: each look is a process on the host.
UNITS = 1.0
TAIL = 25
# What a library says stands above the tracebacks that it makes, one of each thread and process.
WORDS = 150


def not_ready(ctx: Context, unit: Engine | Router, deadline: float = 2.0) -> str:
    """Why `unit` takes no requests now; empty when it is ready."""
    if is_foreign(unit):
        return unhealthy(ctx, unit)
    try:
        status, document = call(ctx, "GET", f"{unit.url}/ready", deadline)
    except PdctlError as error:
        return "it does not answer yet" if error.exit is Exit.UNREACHABLE else error.message
    if status == 200 and document.get("ready", True):
        return ""
    reasons = document.get("reasons") or document.get("not_ready") or [f"HTTP {status}"]
    return ", ".join(str(r) for r in reasons)


def observed(ctx: Context, units: Sequence[Engine | Router]) -> list[str]:
    """What each unit looks like now, in one sentence each; never raises."""
    lines = []
    for unit in units:
        try:
            found = unit_of(ctx.units_of(unit).status([unit.name])[unit.name])
            said = found.state + (f", pid {found.pid}" if found.pid else "")
        except PdctlError as error:
            said = error.message
        why = not_ready(ctx, unit)
        lines.append(f"{unit.name}: {said}, " + (f"not ready ({why})" if why else "ready"))
    return lines


def wait_ready(ctx: Context, units: Sequence[Engine | Router], deadline: float) -> None:
    """PdctlError with exit code and log's tail when a unit failed; DeadlineError naming who is waited for."""
    end = time.monotonic() + deadline
    waiting = list(units)
    look_at_units = 0.0
    while waiting:
        if time.monotonic() >= look_at_units:
            _check_alive(ctx, waiting)
            look_at_units = time.monotonic() + UNITS
        reasons = {u.name: why for u in waiting if (why := not_ready(ctx, u))}
        waiting = [u for u in waiting if u.name in reasons]
        if not waiting:
            return
        text = "; ".join(f"{name}: {why}" for name, why in reasons.items())
        if time.monotonic() > end:
            raise DeadlineError(
                "not_ready",
                f"Not ready after {deadline:g} s: {text}.",
                "See `pdctl diagnose` for the cause; `--wait` sets the deadline.",
                details=[line for u in waiting for line in log_tail(ctx, u)],
            )
        ctx.wait(f"waiting for {text}")
        time.sleep(POLL)


def _check_alive(ctx: Context, units: Sequence[Engine | Router]) -> None:
    """One look at the units of each host; the first one that cannot become ready is raised."""
    for host in dict.fromkeys(u.host for u in units):
        mine = {u.name: u for u in units if u.host == host}
        for name, status in ctx.units(host).status(list(mine)).items():
            if status.state not in ("activating", "active"):
                raise start_failed(ctx, mine[name], status)


def start_failed(ctx: Context, unit: Engine | Router, status: UnitStatus) -> PdctlError:
    """How the unit ended, in its own last sentence where it left one, with the end of what it said."""
    ended = status.ended()
    how = f"{unit.name} is {status.state}" + (f" ({status.reason})" if status.reason else "")
    if status.state == "restarting" and status.restarts == 0:
        how = f"{unit.name} ended with {ended} before it was ready"
    said = ctx.units_of(unit).logs(unit.name, WORDS)
    words = last_words(said) if ended else ""
    return PdctlError(
        "start_failed",
        f"{how} on {unit.host}." + (f" It said: {words}." if words else ""),
        start_hint(status.exit_code) or f"See `pdctl logs {status.name}`.",
        exit=Exit.FINDINGS,
        details=_prefixed(unit, said)[-TAIL:],
    )


def start_hint(exit_code: int | None) -> str:
    """What to do about an engine that ended with a code that names its cause; "" for any other."""
    if exit_code == 73:
        return "A port is taken by another process; choose another in the fleet file or stop that process."
    if exit_code in (2, 74):
        return "Correct it in the fleet file or its profile; `pdctl check` says where."
    return ""


def log_tail(ctx: Context, unit: Engine | Router, lines: int = TAIL) -> list[str]:
    """The end of what the unit's last life said."""
    return _prefixed(unit, ctx.units_of(unit).logs(unit.name, lines))


def _prefixed(unit: Engine | Router, said: Sequence[str]) -> list[str]:
    return [f"{unit.name}| {line}" for line in last_life(said)]
