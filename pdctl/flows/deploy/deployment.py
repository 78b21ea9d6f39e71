"""Deployments as they are recorded on hosts: what served once its gate had passed, and how to want it again.

A record is of one host and whole: every unit that serves there, with its place in the fleet file, its spec,
its env file and its release. The records of one run share an id, so together they are the fleet.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pdctl.fleet.catalogue import known
from pdctl.fleet.model import Cell, Engine, Fleet, Router
from pdctl.fleet.schema import EngineTable, RouterTable
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.units.envfile import parse_env
from pdctl.units.spec import UnitSpec

Entry = dict[str, Any]
SCHEMA = 1


@dataclass(frozen=True)
class Author:
    """Who makes a deployment: `what` is deploy, or rollback to an earlier one; `run` its run in the journal.

    `serial` counts a fleet's deployments, because the clocks of operators differ.
    """

    id: str
    serial: int
    by: str
    what: str
    run: str


def new_id() -> str:
    """Sorts by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def entry(unit: DesiredUnit) -> Entry:
    """One unit of a record."""
    place = unit.unit
    fleet = {
        "kind": "router" if isinstance(place, Router) else "engine",
        "cell": "" if isinstance(place, Router) else place.cell,
        "host": place.host,
        "address": place.address,
        "profile": place.profile,
        "table": place.spec.model_dump(mode="json"),
    }
    spec = json.loads(json.dumps(asdict(unit.spec)))
    return {"fleet": fleet, "spec": spec, "env": unit.env_text(), "release": unit.release}


def wanted(name: str, found: Entry) -> DesiredUnit:
    """The unit that an entry describes. ValueError when another version of pdctl wrote it."""
    place, table = found["fleet"], found["fleet"]["table"]
    where = (place["host"], place["address"], place["profile"])
    unit: Engine | Router
    if place["kind"] == "router":
        unit = Router(name, *where, RouterTable.model_validate(table))
    else:
        unit = Engine(name, place["cell"], *where, EngineTable.model_validate(table))
    env = parse_env(found["env"])
    live = {e: float(v) for e, v in env.items() if e in known() and known()[e].live}
    spec = UnitSpec.from_json(json.dumps({"schema": 1, **found["spec"]}))
    return DesiredUnit(unit, spec, env, live, found["release"])


@dataclass(frozen=True)
class Deployment:
    """`hosts` are the records of those hosts that have one: host -> unit -> entry."""

    id: str
    serial: int
    at: float
    by: str
    what: str
    hosts: dict[str, dict[str, Entry]]
    model: dict[str, str]

    def units(self) -> Iterable[tuple[str, Entry]]:
        for units in self.hosts.values():
            yield from units.items()

    @property
    def releases(self) -> list[str]:
        return sorted({e["release"] for _, e in self.units() if e["release"]})

    def same(self, other: Deployment) -> bool:
        return (self.hosts, self.model) == (other.hosts, other.model)


def record(author: Author, fleet: Fleet, host: str, units: Mapping[str, Entry]) -> Entry:
    model = {"path": fleet.model.path, "name": fleet.model.name}
    return {
        "schema": SCHEMA,
        "id": author.id,
        "serial": author.serial,
        "at": time.time(),
        "by": author.by,
        "what": author.what,
        "run": author.run,
        "fleet": fleet.name,
        "host": host,
        "model": model,
        "units": dict(units),
    }


def serving(newest: Mapping[str, Entry | None]) -> Deployment | None:
    """What each host recorded last, taken together (host -> record); None where nothing is recorded."""
    there = {host: found for host, found in newest.items() if found is not None}
    return _joined(there) if there else None


def deployments(records: Mapping[str, Iterable[Entry]]) -> list[Deployment]:
    """Every deployment of the fleet, newest first (host -> its records, oldest first).

    A host that a run did not touch keeps its older record, which is then part of that deployment too.
    """
    made = []
    for serial in sorted({r["serial"] for found in records.values() for r in found}, reverse=True):
        upto = {host: [r for r in found if r["serial"] <= serial] for host, found in records.items()}
        made.append(_joined({host: found[-1] for host, found in upto.items() if found}))
    return made


def _joined(there: Mapping[str, Entry]) -> Deployment:
    last = max(there.values(), key=lambda r: (r["serial"], r["id"]))
    hosts = {host: found["units"] for host, found in there.items()}
    about = (last["id"], last["serial"], last["at"], last["by"], last["what"])
    return Deployment(*about, hosts, last["model"])


def fleet_of(fleet: Fleet, deployment: Deployment, cells: Iterable[str] = (), router: bool = True) -> Fleet:
    """`fleet` with cells and router as `deployment` has them: those of `cells`, all when there are none."""
    units = [wanted(name, found).unit for name, found in deployment.units()]
    engines = [u for u in units if isinstance(u, Engine)]
    chosen = set(cells) or {e.cell for e in engines}
    was = {c: Cell(c, tuple(e for e in engines if e.cell == c)) for c in chosen}
    kept = {c: cell for c, cell in fleet.cells.items() if c not in was and cells}
    routers = [u for u in units if isinstance(u, Router)]
    front = routers[0] if router and routers else fleet.router
    model = fleet.model.model_copy(update=deployment.model)
    return replace(fleet, cells={**kept, **was}, router=front, model=model)
