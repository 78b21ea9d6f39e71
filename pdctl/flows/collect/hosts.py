"""What is asked of every host, in one question each: processes, logs, clock, disk, ports, peers, tools."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from pdctl.adapters.picture import Reach
from pdctl.adapters.stamps import written
from pdctl.bundle.collected import ANSWERS, UNASKED, UNITS
from pdctl.bundle.manifest import Asked, Skipped
from pdctl.errors import PdctlError
from pdctl.facts import ports, reach
from pdctl.facts.ask import Answers, Request
from pdctl.facts.collect import Gathered, gather
from pdctl.facts.missing import Missing
from pdctl.facts.probes.tools import TOOLS
from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.flows.asking import ask_host
from pdctl.flows.collect.parties import Collection
from pdctl.flows.context import Context
from pdctl.flows.foreign import is_foreign
from pdctl.remote.fanout import begin
from pdctl.units.spec import UnitStatus
from pdctl.units.systemhost import unit_of

HOST_DEADLINE = 5.0
LOG_LIMIT = 2 << 20  # bytes of one unit's log


def request(fleet: Fleet, host: str, since: float) -> Request:
    """What is asked of `host` beside its units' processes; logs of the last `since` seconds."""
    here = fleet.hosts[host]
    units = [unit for unit in fleet.units() if unit.host == host]
    mine = [port for unit in units for port in unit.ports]
    logs = {unit.name: _log(fleet, unit) for unit in units}
    return {
        "clock": {},
        "zone": {},
        "disk": {"path": here.root},
        **ports.request(here.address, mine),
        "reach": {"targets": _peers(fleet, host), "goodbye": [], "seconds": reach.CONNECT},
        "logs": {"units": logs, "since": time.time() - since, "limit": LOG_LIMIT},
        "tools": {"names": list(TOOLS)},
    }


def _log(fleet: Fleet, unit: Engine | Router) -> dict[str, str]:
    """Where its log is: pdctl's keeper writes the file, systemd the journal."""
    return {
        "file": fleet.host_paths(unit.host).log(unit.name),
        "service": unit_of(fleet.name, unit.role, unit.name),
        "scope": fleet.hosts[unit.host].spec.scope,
    }


def _peers(fleet: Fleet, host: str) -> list[dict[str, object]]:
    """What the units of `host` connect to: decodes dial prefills, the router reaches every engine."""
    wanted = [(p.address, p.bootstrap_port) for p, d in fleet.edges() if d.host == host]
    if fleet.router.host == host and fleet.router.kind != "none":
        wanted += [(e.address, e.port) for e in fleet.engines()]
    return [{"address": a, "port": p, "gently": True} for a, p in dict.fromkeys(wanted) if p is not None]


async def ask_one(ctx: Context, host: str, since: float, stacks: bool = False) -> Collection:
    """A host that does not answer in time costs its deadline and no more; one that has told of its units
    lives, is only slow, and gets as long again for the rest.
    """
    names = [unit.name for unit in ctx.fleet.units() if unit.host == host]
    at, began = time.time(), time.monotonic()
    lives = threading.Event()

    def asking(asked: Request) -> Answers:
        lives.set()
        if stacks and "processes" in asked:
            asked = {**asked, "stacks": asked["processes"]}
        return ask_host(ctx, host, asked, deadline=HOST_DEADLINE)

    try:
        looking = begin(lambda: gather(ctx.units(host), asking, names, request(ctx.fleet, host, since)))
        waiting = asyncio.wrap_future(looking)
        await asyncio.wait([waiting], timeout=HOST_DEADLINE)
        found = await asyncio.wait_for(waiting, HOST_DEADLINE if lives.is_set() else 0.0)
    except TimeoutError:
        return _asked(host, at, began, f"host {host} did not answer within {HOST_DEADLINE:g} s")
    except PdctlError as error:
        return _asked(host, at, began, error.message)
    if isinstance(found.statuses, Missing) and not found.answers.facts:
        return _asked(host, at, began, found.statuses.reason)
    collection = _asked(host, at, began, "")
    _file(ctx.fleet, host, found, since, collection)
    return collection


def _asked(host: str, at: float, began: float, failed: str) -> Collection:
    seconds = round(time.monotonic() - began, 4)
    outcome = "failed" if failed else Reach.OK.value
    document = "" if failed else f"hosts/{host}/{ANSWERS}"
    asked = Asked(host, "facts", "", 0, round(at, 3), seconds, 0, outcome, failed, document)
    return Collection(asked=[asked])


def _file(fleet: Fleet, host: str, found: Gathered, window: float, into: Collection) -> None:
    """One host's answers, taken apart into documents that a person can read; logs of the last `window` s."""
    since = found.answers.sent - window
    facts = dict(found.answers.facts)
    logs, tools, stacks = (facts.pop(subject, {}) for subject in ("logs", "tools", "stacks"))
    said = {
        "sent": round(found.answers.sent, 6),
        "seconds": round(found.answers.seconds, 6),
        "facts": facts,
        "missing": dict(found.answers.missing),
    }
    text = json.dumps(said, indent=1) + "\n"
    into.texts[f"hosts/{host}/{ANSWERS}"] = text
    into.asked[0] = replace(into.asked[0], bytes=len(text))
    statuses = found.statuses
    units: dict[str, Any] = (
        {"missing": statuses.reason}
        if isinstance(statuses, Missing)
        else {"units": {name: asdict(status) for name, status in statuses.items()}}
    )
    into.texts[f"hosts/{host}/{UNITS}"] = json.dumps(units, indent=1) + "\n"
    for name, tool in tools.items():
        if "text" in tool:
            keep = _KEEP.get(name, lambda text, since: text)
            into.texts[f"hosts/{host}/{name}"] = keep(tool["text"], since)
        else:
            into.skipped.append(Skipped(host, name, tool["missing"]))
    _logs(found, logs, window, into)
    if not isinstance(statuses, Missing):
        pids = {name: status.pid for name, status in statuses.items()}
        _processes(fleet, host, pids, facts.get("processes", {}), into)
        for name, pid in pids.items():
            dumped = stacks.get(str(pid), {})
            if "text" in dumped:
                into.texts[f"{name}/stacks.txt"] = dumped["text"]
            elif dumped:
                into.skipped.append(Skipped(name, "stacks", dumped["missing"]))


def _logs(found: Gathered, logs: dict[str, Any], window: float, into: Collection) -> None:
    """Units' logs of the last `window` seconds; of a unit that ended the time before its end, however long
    ago that was: it is what tells why.
    """
    now, statuses, zone = found.answers.sent, found.statuses, found.answers.facts.get("zone")
    local = min(0, zone if isinstance(zone, int) else 0)  # a stamp without a zone is of the host's local time
    for name, log in logs.items():
        if "text" not in log:
            into.skipped.append(Skipped(name, "log", log["missing"]))
            continue
        ended = None if isinstance(statuses, Missing) or name not in statuses else _ended(statuses[name])
        since = min(now, ended or now) - window + local
        into.texts[f"{name}/log.txt"] = _of_window(_unpacked(log["text"]), since, now)


def _ended(status: UnitStatus) -> float | None:
    """When the last life ended of a unit that is down, or came back unasked."""
    if not status.running:
        return status.since
    return status.started_at if status.restarts and status.started_by in UNASKED else None


def _of_window(text: str, since: float, near: float) -> str:
    """A log without the lines written before `since`; one whose lines have no time is kept whole."""
    lines = text.splitlines(keepends=True)
    begin, older = len(lines), False
    for number, line in enumerate(lines):
        at = written(line, near)
        if at is not None and at >= since:
            begin = number
            break
        older = older or at is not None
    return "".join(lines[begin:]) if older else text


def _recent(text: str, since: float) -> str:
    """The lines of a kernel log from Unix second `since` on."""
    lines = text.splitlines(keepends=True)
    stamps = ((n, written(line)) for n, line in enumerate(lines))
    begin = next((n for n, at in stamps if at is not None and at >= since), len(lines))
    return "".join(lines[begin:])


# Whose arguments are kept: engines, and what runs beside them. Other people's are nobody's business.
_SERVERS = re.compile(r"sglang|vllm|dynamo|trtllm|mooncake|nixl|lmcache|\bengine\b|ray::", re.IGNORECASE)


def _programs(text: str, since: float) -> str:
    """A list of processes (nine words, then the command): of servers whole, of all others the program's name,
    which may lie in anybody's folder."""
    rows = (line.split(None, 9) for line in text.splitlines())
    kept = [
        row if len(row) < 10 or _SERVERS.search(row[9]) else [*row[:9], _named(row[9].split()[0])]
        for row in rows
    ]
    return "".join(" ".join(row) + "\n" for row in kept)


def _named(program: str) -> str:
    return program.rpartition("/")[2] if program.startswith("/") else program


_KEEP: dict[str, Callable[[str, float], str]] = {"dmesg.txt": _recent, "ps.txt": _programs}


def _unpacked(packed: str) -> str:
    return zlib.decompress(base64.b64decode(packed)).decode("utf-8", "replace")


def _processes(
    fleet: Fleet, host: str, pids: dict[str, int | None], rows: dict[str, Any], into: Collection
) -> None:
    """Each unit's environment, and the command line of one whose flags no endpoint shows."""
    for unit in fleet.units():
        row = rows.get(str(pids.get(unit.name))) if unit.host == host else None
        if not row or "missing" in row:
            continue
        values = row["environ"].get("values")
        if values is not None:
            lines = [f"{name}={value}" for name, value in sorted(values.items())]
            into.texts[f"{unit.name}/env"] = "\n".join([*lines, ""])
        else:
            into.skipped.append(Skipped(unit.name, "env", row["environ"]["missing"]))
        if row.get("limits"):
            into.texts[f"{unit.name}/limits"] = row["limits"]
        if row.get("libraries"):
            into.texts[f"{unit.name}/maps"] = "\n".join([*row["libraries"], ""])
        if is_foreign(unit):
            into.texts[f"{unit.name}/cmdline"] = shlex.join(row.get("argv", [])) + "\n"
