"""The fleet at a glance: one row an engine, the router with its ledger, then what is not well."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from pdctl.adapters.picture import Engine, Pages, Reach, Router
from pdctl.facts.missing import Missing
from pdctl.flows.status import EngineStatus, FleetStatus
from pdctl.render.table import show_table
from pdctl.units.spec import UnitStatus

COLUMNS = (
    "cell",
    "engine",
    "role",
    "unit",
    "state",
    "incarnation",
    "queues",
    "oldest",
    "pages",
    "profile",
    "release",
)
# Requests of these queues wait; those in `running` work.
WAITING = ("waiting", "prefilling", "inflight", "preallocated", "transferring", "ready")
WORKERS = 8  # of a router's workers that are shown


def show_status(status: FleetStatus) -> None:
    show_table(COLUMNS, [_engine(e) for e in status.engines], f"fleet {status.name}")
    _router(status)
    for kind in sorted({e.engine.kind for e in status.engines} - {"bundled"}):
        print(f"{kind} engines show depths of queues as they published them last; no ages, no requests.")
    for line in _troubles(status):
        print(line)


def watch_status(look: Callable[[], FleetStatus], every: float) -> None:
    """Until Ctrl-C; each look replaces the one before it on a terminal."""
    while True:
        status = look()
        if sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="")
        print(time.strftime("%H:%M:%S", time.localtime(status.at)))
        show_status(status)
        sys.stdout.flush()
        time.sleep(every)


def age(seconds: float | None) -> str:
    """Seconds as people say them; a dash for none."""
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _engine(e: EngineStatus) -> tuple[object, ...]:
    known = e.sample.picture
    head = (e.engine.cell, e.engine.name, e.engine.role, _unit(e.unit))
    tail = (e.engine.profile, e.release or None)
    if not isinstance(known, Engine):
        return (*head, str(e.sample.reach), None, None, None, None, *tail)
    depths = [f"{name} {queue.depth}" for name, queue in known.queues.items() if queue.depth]
    ages = [q.oldest_age for n, q in known.queues.items() if n in WAITING and q.oldest_age is not None]
    pages = None
    if isinstance(known.pages, Pages):
        pages = f"{known.pages.free}/{known.pages.total}"
        if known.pages.quarantined:
            pages += f" ({known.pages.quarantined} quarantined)"
    return (
        *head,
        known.status if known.ready or known.status != "ready" else "not ready",
        None if isinstance(known.incarnation, Missing) else known.incarnation[:8],
        ", ".join(depths) or ("empty" if known.queues else None),
        age(max(ages)) if ages else None,
        pages,
        *tail,
    )


def _unit(unit: UnitStatus) -> str:
    if not unit.restarts:
        return unit.state
    return f"{unit.state}, {unit.restarts} restart{'' if unit.restarts == 1 else 's'}"


def _router(status: FleetStatus) -> None:
    front = status.router_sample.picture
    name = f"{status.router.name} {status.router.url}"
    if status.router.kind == "none":
        print("no router in the fleet file")
        return
    if status.router.kind != "bundled":
        said = "ready" if status.router_sample.reach is Reach.OK else status.router_sample.detail
        print(f"{name}: unit {_unit(status.router_unit)}, kind {status.router.kind}, {said}")
        for worker in front.engines[:WORKERS] if isinstance(front, Router) else ():
            fit = "healthy" if worker.ready else worker.error
            print(f"  {worker.role} {worker.url}: {fit}, {worker.active} active")
        return
    if not isinstance(front, Router):
        print(f"{name}: unit {_unit(status.router_unit)}, {front.reason}")
        return
    requests = front.requests if isinstance(front.requests, tuple) else ()
    stages: dict[str, int] = {}
    for request in requests:
        stages[request.stage] = stages.get(request.stage, 0) + 1
    held = f", held since {age(front.hold_age)}" if front.admission != "open" else ""
    ledger = ", ".join(f"{n} {stage}" for stage, n in stages.items()) or "no requests"
    oldest = f", oldest {age(max(r.age for r in requests))}" if requests else ""
    print(f"{name}: unit {_unit(status.router_unit)}, admission {front.admission}{held}; {ledger}{oldest}")


def _troubles(status: FleetStatus) -> list[str]:
    lines = []
    for e in status.engines:
        known = e.sample.picture
        if e.unit.reason and e.unit.state != "active":
            lines.append(f"{e.engine.name}: unit {e.unit.state}: {e.unit.reason}")
        if isinstance(known, Engine):
            if not known.ready:
                lines.append(f"{e.engine.name}: not ready: {', '.join(known.not_ready)}")
        elif e.unit.state == "active" or not e.unit.reason:
            lines.append(f"{e.engine.name}: {e.sample.detail or e.sample.reach}")
    if status.strangers:
        names = ", ".join(status.strangers)
        lines.append(f"{status.router.name} was never told of {names} and sends nothing there.")
    if all(unit.state == "missing" for unit in (status.router_unit, *(e.unit for e in status.engines))):
        return [*lines, "Nothing of this fleet was deployed yet: `pdctl deploy` does it."]
    return [*lines, "`pdctl diagnose` says why."] if lines else []
