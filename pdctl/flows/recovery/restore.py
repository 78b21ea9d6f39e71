"""Put back what is still as an interrupted run left it, and say what somebody has changed since.

A run that was killed leaves nothing behind that way; what a deploy or an edit has changed since is theirs
and stays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from pdctl.errors import PdctlError, UnreachableError
from pdctl.fleet.edit import write_profile
from pdctl.flows import admin, signals
from pdctl.flows.context import Context
from pdctl.flows.recovery.envs import change_env, read_env
from pdctl.flows.recovery.record import Fault, Record, forget, read, write
from pdctl.flows.recovery.redeploy import redeploy
from pdctl.flows.recovery.timeouts import set_live

# Between the record and the hold that it announces.
_SOON = 30.0


@dataclass
class Restored:
    """One sentence each: what was put back, and what was changed since and left alone."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def restore(ctx: Context) -> Restored:
    """Put back what is still as the run left it, and delete the record.

    PdctlError when a unit that answers refuses, or a host cannot be asked: the record stays then. A unit that
    does not run has lost the live value anyway; one that runs and is silent (frozen) keeps it, so its part of
    the record stays: UnreachableError names it.
    """
    record = read(ctx.fleet)
    done = Restored()
    if record is None:
        return done
    # This machine's own files first: a host that cannot be asked must not keep them half changed.
    for name, (was, now) in record.files.items():
        _rewrite(Path(name), was, now, done)
    _go_on(ctx, record, done)
    named = {*record.timeouts, *(f.engine for f in record.faults)}
    named |= {ctx.fleet.router.name} if record.held else set()
    lives = {unit: life for unit in named if (life := _life(ctx, unit)) is not None}
    silent = {unit for unit in named - lives.keys() if _runs(ctx, unit)}
    same = {unit for unit, life in lives.items() if life == record.lives.get(unit)}
    if record.held and ctx.fleet.router.name in same:
        _admit(ctx, record, done)
    for fault in record.faults:
        if fault.engine in same:
            _disarm(ctx, fault, done)
    for unit, row in record.envs.items():
        _env_back(ctx, unit, row, done)
    for unit, values in record.timeouts.items():
        if unit in lives:
            # What came with a restart from an env file that the run had written is the run's, too.
            _put_back(ctx, unit, values, unit in same or unit in record.envs, done)
    if silent:
        _keep(ctx, record, silent)
    if record.deploys and (changes := redeploy(ctx)):
        done.done.append(f"deployed as before: {changes} changes")
    forget(ctx.fleet)
    return done


def _go_on(ctx: Context, record: Record, done: Restored) -> None:
    """Processes that the run stopped; those that are gone need nothing."""
    names = {unit.name for unit in ctx.fleet.units()}
    reached = signals.send(ctx, "CONT", [p for p in record.frozen if p.unit in names])
    for unit in dict.fromkeys(p.unit for p in reached):
        pids = ", ".join(str(p.pid) for p in reached if p.unit == unit)
        done.done.append(f"{unit}: pid {pids} goes on")


def _admit(ctx: Context, record: Record, done: Restored) -> None:
    """The hold of the run itself; one that a later run left is that run's."""
    router = ctx.fleet.router
    state = admin.get(ctx, router.url, "/v1/state")
    if state.get("admission") != "held":
        return
    if time.time() - float(state.get("hold_age_s") or 0.0) > record.at + _SOON:
        done.left.append(f"{router.name}: admissions were held again since, and stay held")
        return
    admin.post(ctx, router.url, "resume")
    done.done.append(f"{router.name}: admits again")


def _env_back(ctx: Context, unit: str, row: dict[str, tuple[str | None, str | None]], done: Restored) -> None:
    known = next((u for u in ctx.fleet.units() if u.name == unit), None)
    seen = read_env(ctx, known) if known is not None else None
    if known is None or seen is None:
        return
    back = {name: was for name, (was, now) in row.items() if seen.get(name) == now != was}
    other = [name for name, (was, now) in row.items() if seen.get(name) not in (was, now)]
    if back:
        change_env(ctx, known, back)
        done.done.append(f"{unit}: {', '.join(sorted(back))} of its env file as before")
    done.left += [f"{unit}: {name} of its env file was changed since and is left alone" for name in other]


def _put_back(
    ctx: Context, unit: str, values: dict[str, tuple[float, float]], same: bool, done: Restored
) -> None:
    """Each value that the unit still has from the run; `same`: it is the life that the run set it in.

    Asked of the admin verb and not of /v1/state, which lags a moment behind: an engine takes its answers
    and what was posted before, even by a call that was broken off, in order.
    """
    seen = admin.timeouts(ctx, ctx.fleet.unit(unit).url)
    back: dict[str, float] = {}
    for name, (was, now) in values.items():
        value = seen.get(name)
        if same and value == now:
            back[name] = was
        elif value is not None and value != was:
            since = "was set since" if same else "came with a restart since"
            done.left.append(f"{unit}: {name} of {value:g} s {since} and is left alone")
    if back:
        set_live(ctx, unit, back)
        done.done += [f"{unit}: {name} back to {v:g} s" for name, v in back.items()]


def _disarm(ctx: Context, fault: Fault, done: Restored) -> None:
    """Also when it is not shown: the published state lags a moment behind."""
    url = ctx.fleet.engine(fault.engine).url
    armed = admin.get(ctx, url, "/v1/state").get("faults", {}).get("armed", [])
    ours = (fault.count, fault.value)
    if any(f["name"] == fault.name and (f["count"], f["value"]) != ours for f in armed):
        done.left.append(f"{fault.engine}: {fault.name} was armed otherwise since and is left alone")
        return
    admin.post(ctx, url, "faults", {"name": fault.name, "armed": False}, drill=True)
    done.done.append(f"{fault.engine}: {fault.name} disarmed")


def _rewrite(file: Path, was: str, now: str, done: Restored) -> None:
    text = file.read_text(encoding="utf-8") if file.exists() else None
    if text == now:
        write_profile(file, was)
        done.done.append(f"{file.name} as it was")
    elif text != was:
        done.left.append(f"{file.name} was changed since and is left alone")


def _life(ctx: Context, unit: str) -> str | None:
    """The incarnation that answers; None for a unit that does not, or has left the fleet file."""
    url = next((u.url for u in ctx.fleet.units() if u.name == unit), None)
    state = admin.state(ctx, url) if url is not None else {}
    return str(state.get("incarnation", "")) if state else None


def _runs(ctx: Context, unit: str) -> bool:
    """Also when that cannot be told."""
    known = next((u for u in ctx.fleet.units() if u.name == unit), None)
    try:
        return known is not None and ctx.units_of(known).status([unit])[unit].pid is not None
    except PdctlError:
        return True


def _keep(ctx: Context, record: Record, silent: set[str]) -> None:
    """Leave in the record what those units still have, for the next run. UnreachableError, always."""
    left = {unit: values for unit, values in record.timeouts.items() if unit in silent}
    faults = [f for f in record.faults if f.engine in silent]
    held = record.held and ctx.fleet.router.name in silent
    write(ctx.fleet, replace(record, timeouts=left, faults=faults, files={}, envs={}, frozen=[], held=held))
    names = ", ".join(sorted(silent))
    raise UnreachableError(
        "not_put_back",
        f"{names} runs and does not answer: what a drill has set there is not put back.",
        "Run `pdctl diagnose` for the cause, then the same command again: it puts that back first.",
        details=[f"{u}: {name} was {was:g} s" for u, row in left.items() for name, (was, _) in row.items()],
    )
