"""The recovery record: what to put back, written before anything is changed.

.pdctl/recovery.json holds old timeouts per unit, faults armed per engine and profile files as they were.
Whoever finds it restores it first, so that a run that was killed leaves the fleet with its old values
at the next one.
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
from pdctl.fleet.model import Fleet
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.waiting import until

READ_BACK = 10.0


@dataclass
class Record:
    """`timeouts[unit][name]` are seconds as they were; `faults` are (engine, fault) that may be armed;
    `files` are profile files and their text before any edit."""

    timeouts: dict[str, dict[str, float]] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    def document(self) -> dict[str, Any]:
        faults = [list(f) for f in self.faults]
        head = {"schema": 1, "at": self.at, "pid": os.getpid()}
        return {**head, "timeouts": self.timeouts, "faults": faults, "files": self.files}


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
        return Record(
            {unit: {n: float(v) for n, v in row.items()} for unit, row in data["timeouts"].items()},
            [(engine, fault) for engine, fault in data["faults"]],
            {str(name): str(text) for name, text in data["files"].items()},
            float(data["at"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PdctlError(
            "bad_recovery",
            f"{path(fleet)} cannot be read: {error}.",
            "Compare the fleet with `pdctl diagnose` (PD101, PD606), then delete the file.",
            exit=Exit.USAGE,
        ) from None


def restore(ctx: Context) -> list[str]:
    """Put everything back and delete the record; one sentence a change.

    PdctlError when a unit that answers refuses. One that does not run has lost the live value anyway; one
    that runs and is silent (frozen) keeps it, so its part of the record stays: UnreachableError names it.
    """
    record = read(ctx.fleet)
    if record is None:
        return []
    done = []
    named = {*record.timeouts, *(engine for engine, _ in record.faults)}
    answers = {unit for unit in named if _answers(ctx, unit)}
    silent = {unit for unit in named - answers if _runs(ctx, unit)}
    for engine, fault in record.faults:
        if engine in answers:
            url = ctx.fleet.engine(engine).url
            admin.post(ctx, url, "faults", {"name": fault, "armed": False}, drill=True)
            done.append(f"{engine}: {fault} disarmed")
    for unit, values in record.timeouts.items():
        if values and unit in answers:
            # Without looking first: the published state lags a moment behind, a skipped value would stay.
            set_live(ctx, unit, values)
            done += [f"{unit}: {name} back to {v:g} s" for name, v in values.items()]
    for name, text in record.files.items():
        file = Path(name)
        if file.exists() and file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            done.append(f"{file.name} as it was")
    if silent:
        _keep(ctx.fleet, record, silent)
    forget(ctx.fleet)
    return done


def _answers(ctx: Context, unit: str) -> bool:
    """A unit that has left the fleet file does not."""
    return any(u.name == unit and admin.state(ctx, u.url) for u in ctx.fleet.units())


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
    write(fleet, Record(left, [f for f in record.faults if f[0] in silent], {}, record.at))
    names = ", ".join(sorted(silent))
    raise UnreachableError(
        "not_put_back",
        f"{names} runs and does not answer: its timeouts and faults are still those of the drill.",
        "Run `pdctl diagnose` for the cause, then `pdctl tune-timeout` again: it puts them back first.",
        details=[f"{u}: {name} was {v:g} s" for u, values in left.items() for name, v in values.items()],
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
