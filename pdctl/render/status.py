"""The fleet at a glance: one row an engine, the router with its ledger, then what is not well."""

from __future__ import annotations

from pdctl.adapters.picture import Engine, Pages, Reach, Router
from pdctl.diagnose.words import listed
from pdctl.facts.missing import Missing
from pdctl.flows.status import EngineStatus, FleetStatus
from pdctl.render.table import show_table
from pdctl.supervisor.observation import WAITING
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
WORKERS = 8  # of a router's workers that are shown


def show_status(status: FleetStatus) -> None:
    show_table(COLUMNS, [_engine(e) for e in status.engines], f"fleet {status.name}")
    _router(status)
    for kind in sorted({e.engine.kind for e in status.engines} - {"bundled"}):
        print(f"{kind} engines show depths of queues as they published them last; no ages, no requests.")
    for line in troubles(status):
        print(line)


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
        return (*head, state_of(e), None, None, None, None, *tail)
    depths = [f"{name} {queue.depth}" for name, queue in known.queues.items() if queue.depth]
    ages = [q.oldest_age for n, q in known.queues.items() if n in WAITING and q.oldest_age is not None]
    pages = None
    if isinstance(known.pages, Pages):
        pages = f"{known.pages.free}/{known.pages.total}"
        if known.pages.quarantined:
            pages += f" ({known.pages.quarantined} quarantined)"
    return (
        *head,
        state_of(e),
        None if isinstance(known.incarnation, Missing) else known.incarnation[:8],
        ", ".join(depths) or ("empty" if known.queues else None),
        age(max(ages)) if ages else None,
        pages,
        *tail,
    )


def state_of(e: EngineStatus) -> str:
    """What the engine says of itself; how the probe ended when it says nothing."""
    known = e.sample.picture
    if not isinstance(known, Engine):
        return str(e.sample.reach)
    return known.status if known.ready or known.status != "ready" else "not ready"


def _unit(unit: UnitStatus) -> str:
    if not unit.restarts:
        return unit.state
    return f"{unit.state}, {unit.restarts} restart{'' if unit.restarts == 1 else 's'}"


def _router(status: FleetStatus) -> None:
    print(router_line(status))
    front = status.router_sample.picture
    if status.router.kind in ("bundled", "none"):
        return
    for worker in front.engines[:WORKERS] if isinstance(front, Router) else ():
        fit = "healthy" if worker.ready else worker.error
        print(f"  {worker.role} {worker.url}: {fit}, {worker.active} active")


def router_line(status: FleetStatus) -> str:
    """The router in one line: unit, admission, and its ledger by stage."""
    front = status.router_sample.picture
    if status.router.kind == "none":
        return "no router in the fleet file"
    head = f"{status.router.name} {status.router.url}: unit {_unit(status.router_unit)}"
    if status.router.kind != "bundled":
        said = "ready" if status.router_sample.reach is Reach.OK else status.router_sample.detail
        return f"{head}, kind {status.router.kind}, {said}"
    if not isinstance(front, Router):
        return f"{head}, {front.reason}"
    requests = front.requests if isinstance(front.requests, tuple) else ()
    stages: dict[str, int] = {}
    for request in requests:
        stages[request.stage] = stages.get(request.stage, 0) + 1
    held = f", held since {age(front.hold_age)}" if front.admission != "open" else ""
    ledger = ", ".join(f"{n} {stage}" for stage, n in stages.items()) or "no requests"
    oldest = f", oldest {age(max(r.age for r in requests))}" if requests else ""
    return f"{head}, admission {front.admission}{held}; {ledger}{oldest}"


def troubles(status: FleetStatus) -> list[str]:
    """A line for each thing that is not well, and what to do next."""
    lines = []
    for host, why in status.unreachable.items():
        units = [e.engine.name for e in status.engines if e.engine.host == host]
        units += [status.router.name] if status.router.host == host else []
        lines.append(f"Host {host} is unreachable, and with it {listed(units)}: {why}")
    for e in status.engines:
        if e.engine.host in status.unreachable:
            continue
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
