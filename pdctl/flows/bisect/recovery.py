"""The recovery record of a bisect: what its trials may change, written before the first of them.

.pdctl/bisect/recovery.json holds each value as it was and as trials set it, and the processes that trials
have started. Whoever finds it puts back what is still a trial's and starts anew what still runs with one;
what somebody has changed since, by a deploy or an edit, is theirs and stays.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.fleet.catalogue import known
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.flows import admin
from pdctl.flows.bisect.differences import is_live
from pdctl.flows.context import Context
from pdctl.flows.recovery.envs import change_env, read_env
from pdctl.flows.recovery.record import keep
from pdctl.flows.recovery.restore import Restored
from pdctl.flows.recovery.timeouts import set_live

SCHEMA = 1


@dataclass(frozen=True)
class Refused:
    """What was restarted did not come up: `at` is START or SERVE of search.py, `why` in words."""

    at: str
    why: str


# Starts a cell, or the router, anew; None when it came up.
Restart = Callable[[Context, str], Refused | None]
RESTARTED = "restarted with the values it had"


@dataclass
class Kept:
    """One variable of one unit: as it was, and as GOOD and as BAD have it. None is unset."""

    was: str | None
    ours: list[str | None]


@dataclass
class Record:
    """`env[unit][name]`; `live[unit][name]` is what was in force before, by the engine's own names, which
    need not be what the env file says. `started[group][unit]` is the process that a trial started last, no
    entry for one that was being restarted. A group is a cell or the router."""

    env: dict[str, dict[str, Kept]] = field(default_factory=dict)
    live: dict[str, dict[str, float]] = field(default_factory=dict)
    started: dict[str, dict[str, int]] = field(default_factory=dict)
    at: float = field(default_factory=time.time)


def folder(fleet: Fleet) -> Path:
    return fleet.paths.state / "bisect"


def path(fleet: Fleet) -> Path:
    return folder(fleet) / "recovery.json"


def write(fleet: Fleet, record: Record) -> None:
    keep(path(fleet), {"schema": SCHEMA, "pid": os.getpid(), **asdict(record)})


def read(fleet: Fleet) -> Record | None:
    """The record, or None when there is none; PdctlError when it cannot be understood."""
    try:
        data = json.loads(path(fleet).read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"it is of schema {data['schema']}, not {SCHEMA}")
        env = {
            str(unit): {str(name): Kept(row["was"], list(row["ours"])) for name, row in rows.items()}
            for unit, rows in data["env"].items()
        }
        live = {str(u): {str(n): float(v) for n, v in row.items()} for u, row in data["live"].items()}
        started = {str(g): {str(u): int(p) for u, p in row.items()} for g, row in data["started"].items()}
        return Record(env, live, started, float(data["at"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PdctlError(
            "bad_recovery",
            f"{path(fleet)} cannot be read: {error}.",
            "Run `pdctl deploy` to bring the fleet to what its file says, then delete that file.",
            exit=Exit.USAGE,
        ) from None


def group_of(unit: Engine | Router) -> str:
    """What is restarted together with `unit`."""
    return unit.cell if isinstance(unit, Engine) else unit.name


def pids(ctx: Context, units: list[Engine | Router]) -> dict[str, int]:
    """The process of each unit that runs."""
    found = {u.name: ctx.units_of(u).status([u.name])[u.name].pid for u in units}
    return {name: pid for name, pid in found.items() if pid is not None}


def live_values(unit: Engine | Router, env: dict[str, str | None]) -> dict[str, float]:
    """Those of `env` that are set while `unit` runs, by the engine's own names; its defaults for what is
    unset."""
    rows = {known()[name]: text for name, text in env.items() if is_live(unit, name)}
    return {
        v.name: v.default if text is None else float(text) for v, text in rows.items() if v.read_by(unit.role)
    }


def put_live(ctx: Context, unit: Engine | Router, values: dict[str, float]) -> None:
    """Set those that differ from what is in force, and see them read back; unknown ones are left out."""
    seen = admin.timeouts(ctx, unit.url) if values else {}
    if new := {name: value for name, value in values.items() if name in seen and seen[name] != value}:
        set_live(ctx, unit.name, new)


def restore(ctx: Context, restart: Restart) -> Restored:
    """Put back what is still a trial's, and delete the record.

    PdctlError when that cannot be done; the record stays then, and the next run tries again.
    """
    record = read(ctx.fleet)
    done = Restored()
    if record is None:
        return done
    units: dict[str, Engine | Router] = {u.name: u for u in ctx.fleet.units() if u.name in record.env}
    stale = {name for name, unit in units.items() if _file_back(ctx, unit, record.env[name], done)}
    for group, started in record.started.items():
        mine = [u for u in units.values() if group_of(u) == group]
        if mine and _ours_still(ctx, mine, started, stale):
            if refused := restart(ctx, group):
                raise PdctlError(
                    "not_put_back",
                    f"{group} has its old values again and did not come up: {refused.why}",
                    "Run `pdctl diagnose` for the cause, then `pdctl resume`.",
                    exit=Exit.FINDINGS,
                )
            done.done.append(f"{group}: {RESTARTED}")
    for name in pids(ctx, list(units.values())):
        _live_back(ctx, units[name], record.env[name], record.live.get(name, {}), done)
    path(ctx.fleet).unlink(missing_ok=True)
    return done


def _file_back(ctx: Context, unit: Engine | Router, rows: dict[str, Kept], done: Restored) -> bool:
    """The env file as it was, where it is still a trial's; whether anything that is read at a start
    changed."""
    there = read_env(ctx, unit)
    if there is None:
        return False
    back = {n: k.was for n, k in rows.items() if there.get(n) != k.was and there.get(n) in k.ours}
    left = [n for n, k in rows.items() if there.get(n) != k.was and there.get(n) not in k.ours]
    done.left += [f"{unit.name}: {name} was changed since and is left alone" for name in left]
    if back:
        change_env(ctx, unit, back)
        done.done.append(f"{unit.name}: {', '.join(back)} as before")
    return any(not is_live(unit, name) for name in back)


def _ours_still(ctx: Context, units: list[Engine | Router], started: dict[str, int], stale: set[str]) -> bool:
    """Whether any of `units` still runs as a trial started it, or does not run."""
    if not started or any(u.name in stale for u in units):
        return True
    now = pids(ctx, units)
    return any(now.get(name) in (None, pid) for name, pid in started.items())


def _live_back(
    ctx: Context, unit: Engine | Router, rows: dict[str, Kept], was: dict[str, float], done: Restored
) -> None:
    """What the running process still has from a trial, or from a restart for one."""
    if not was:
        return
    columns = zip(*([kept.was, *kept.ours] for kept in rows.values()), strict=True)
    ours = [live_values(unit, dict(zip(rows, texts, strict=True))) for texts in columns]
    seen = admin.timeouts(ctx, unit.url)
    back = {
        n: v for n, v in was.items() if n in seen and seen[n] != v and seen[n] in [o.get(n) for o in ours]
    }
    left = [n for n, v in was.items() if n in seen and n not in back and seen[n] != v]
    done.left += [f"{unit.name}: {n} of {seen[n]:g} was set since and is left alone" for n in left]
    put_live(ctx, unit, back)
    done.done += [f"{unit.name}: {name} back to {value:g}" for name, value in back.items()]
