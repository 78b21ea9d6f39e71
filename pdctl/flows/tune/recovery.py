"""The recovery record: what a run is about to change, written before it changes anything.

.pdctl/recovery.json holds each value as it was and as the run sets it. Whoever finds it puts back what is
still as that run left it, so that a run that was killed leaves nothing behind; what somebody has changed
since, by a deploy or an edit, is theirs and stays.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pdctl.errors import PdctlError, UnreachableError
from pdctl.exits import Exit
from pdctl.fleet.edit import write_profile
from pdctl.fleet.model import Fleet
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.waiting import until

SCHEMA = 2
READ_BACK = 10.0


@dataclass
class Record:
    """Pairs are (as it was, as the run sets it).

    `timeouts[unit][name]` are pairs of seconds, `files` profile files and pairs of their text, `faults`
    (engine, fault) that the run arms once. `lives` are the incarnations of the units named: a later one
    knows nothing of what was set in an earlier.
    """

    timeouts: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    lives: dict[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    def document(self) -> dict[str, Any]:
        head = {"schema": SCHEMA, "at": self.at, "pid": os.getpid(), "lives": self.lives}
        return {**head, "timeouts": self.timeouts, "faults": self.faults, "files": self.files}


@dataclass
class Restored:
    """One sentence each: what was put back, and what was changed since and left alone."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def path(fleet: Fleet) -> Path:
    return fleet.paths.state / "recovery.json"


def write(fleet: Fleet, record: Record) -> None:
    """On disk before this returns."""
    target = path(fleet)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = target.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(record.document(), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)


def read(fleet: Fleet) -> Record | None:
    """The record, or None when there is none; PdctlError when it cannot be understood."""
    try:
        data = json.loads(path(fleet).read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"it is of schema {data['schema']}, not {SCHEMA}")
        return Record(
            {
                unit: {name: (float(was), float(now)) for name, (was, now) in row.items()}
                for unit, row in data["timeouts"].items()
            },
            [(engine, fault) for engine, fault in data["faults"]],
            {str(name): (str(was), str(now)) for name, (was, now) in data["files"].items()},
            {str(unit): str(life) for unit, life in data["lives"].items()},
            float(data["at"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PdctlError(
            "bad_recovery",
            f"{path(fleet)} cannot be read: {error}.",
            "Compare the fleet with `pdctl diagnose` (PD101, PD606), then delete the file.",
            exit=Exit.USAGE,
        ) from None


def restore(ctx: Context) -> Restored:
    """Put back what is still as the run left it, and delete the record.

    PdctlError when a unit that answers refuses. One that does not run has lost the live value anyway; one
    that runs and is silent (frozen) keeps it, so its part of the record stays: UnreachableError names it.
    """
    record = read(ctx.fleet)
    done = Restored()
    if record is None:
        return done
    named = {*record.timeouts, *(engine for engine, _ in record.faults)}
    lives = {unit: life for unit in named if (life := _life(ctx, unit)) is not None}
    silent = {unit for unit in named - lives.keys() if _runs(ctx, unit)}
    same = {unit for unit, life in lives.items() if life == record.lives.get(unit)}
    for engine, fault in record.faults:
        if engine in same:
            _disarm(ctx, engine, fault, done)
    for unit, values in record.timeouts.items():
        if unit in lives:
            _put_back(ctx, unit, values, unit in same, done)
    for name, (was, now) in record.files.items():
        _rewrite(Path(name), was, now, done)
    if silent:
        _keep(ctx.fleet, record, silent)
    forget(ctx.fleet)
    return done


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


def _disarm(ctx: Context, engine: str, fault: str, done: Restored) -> None:
    """Also when it is not shown: the published state lags a moment behind."""
    url = ctx.fleet.engine(engine).url
    armed = admin.get(ctx, url, "/v1/state").get("faults", {}).get("armed", [])
    other = [f for f in armed if f["name"] == fault and (f["count"], f["value"]) != (1, 0.0)]
    if other:
        done.left.append(f"{engine}: {fault} was armed otherwise since and is left alone")
        return
    admin.post(ctx, url, "faults", {"name": fault, "armed": False}, drill=True)
    done.done.append(f"{engine}: {fault} disarmed")


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


def _keep(fleet: Fleet, record: Record, silent: set[str]) -> NoReturn:
    """Leave in the record what those units still have, for the next run."""
    left = {unit: values for unit, values in record.timeouts.items() if unit in silent}
    faults = [f for f in record.faults if f[0] in silent]
    write(fleet, Record(left, faults, {}, record.lives, record.at))
    names = ", ".join(sorted(silent))
    raise UnreachableError(
        "not_put_back",
        f"{names} runs and does not answer: its timeouts and faults are still those of the drill.",
        "Run `pdctl diagnose` for the cause, then `pdctl tune-timeout` again: it puts them back first.",
        details=[f"{u}: {name} was {was:g} s" for u, row in left.items() for name, (was, _) in row.items()],
    )


def set_live(ctx: Context, unit: str, values: dict[str, float]) -> None:
    """Set timeouts of a running unit and wait until its state shows them; DeadlineError when it does not."""
    url = ctx.fleet.unit(unit).url
    admin.post(ctx, url, "timeouts", values)

    def behind() -> str:
        seen = admin.state(ctx, url).get("timeouts", {})
        wrong = [
            f"{n}={seen.get(n, {}).get('value')}"
            for n, v in values.items()
            if seen.get(n, {}).get("value") != v
        ]
        return f"{unit} shows {', '.join(wrong)}" if wrong else ""

    until(behind, READ_BACK)


def forget(fleet: Fleet) -> None:
    """What was changed is meant to stay."""
    path(fleet).unlink(missing_ok=True)
