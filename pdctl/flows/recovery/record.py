"""The recovery record: what a run is about to change, written before it changes anything.

.pdctl/recovery.json holds each value as it was and as the run sets it, 0600.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Fleet
from pdctl.flows.signals import Process

SCHEMA = 3


@dataclass(frozen=True)
class Fault:
    """A fault point as the run arms it."""

    engine: str
    name: str
    count: int = 1
    value: float = 0.0


@dataclass
class Record:
    """Pairs are (as it was, as the run sets it).

    `timeouts[unit][name]` are pairs of seconds, `files` profile files and pairs of their text, `envs[unit]
    [variable]` pairs of what its env file says, None for nothing, `frozen` processes that the run stops,
    `held` whether it holds the router's admissions, `deploys` whether it deploys what it has changed, so
    that going back takes a deploy too. `lives` are the incarnations of the units named: a later one knows
    nothing of what was set in an earlier.
    """

    timeouts: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    envs: dict[str, dict[str, tuple[str | None, str | None]]] = field(default_factory=dict)
    frozen: list[Process] = field(default_factory=list)
    held: bool = False
    deploys: bool = False
    lives: dict[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    def document(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "pid": os.getpid(), **asdict(self)}


def path(fleet: Fleet) -> Path:
    return fleet.paths.recovery


def keep(target: Path, document: dict[str, Any]) -> None:
    """Whole and on disk before this returns, 0600."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = target.with_suffix(".tmp")
    made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(made, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)


def write(fleet: Fleet, record: Record) -> None:
    """On disk before this returns."""
    keep(path(fleet), record.document())


def forget(fleet: Fleet) -> None:
    """What was changed is meant to stay, or was put back."""
    path(fleet).unlink(missing_ok=True)


def read(fleet: Fleet) -> Record | None:
    """The record, or None when there is none; PdctlError when it cannot be understood."""
    try:
        return _record(json.loads(path(fleet).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PdctlError(
            "bad_recovery",
            f"{path(fleet)} cannot be read: {error}.",
            "Compare the fleet with `pdctl diagnose` (PD101, PD606), then delete the file.",
            exit=Exit.USAGE,
        ) from None


def _record(data: dict[str, Any]) -> Record:
    if data["schema"] != SCHEMA:
        raise ValueError(f"it is of schema {data['schema']}, not {SCHEMA}")
    return Record(
        timeouts={
            unit: {name: (float(was), float(now)) for name, (was, now) in row.items()}
            for unit, row in data["timeouts"].items()
        },
        faults=[Fault(**row) for row in data["faults"]],
        files={str(name): (str(was), str(now)) for name, (was, now) in data["files"].items()},
        envs={
            unit: {name: (was, now) for name, (was, now) in row.items()} for unit, row in data["envs"].items()
        },
        frozen=[Process(**row) for row in data["frozen"]],
        held=bool(data["held"]),
        deploys=bool(data["deploys"]),
        lives={str(unit): str(life) for unit, life in data["lives"].items()},
        at=float(data["at"]),
    )
