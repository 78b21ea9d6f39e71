"""Deployments as they are recorded on hosts: what served once its gate had passed, and how to want it again.

A record is of one host and whole: every unit that serves there, with its place in the fleet file, its spec,
its env file and its release. The records of one run share an id; with those that other hosts had by then
they are the fleet. `before` is the record that the host had until then ("" for none), `beside` are the
records that hosts with units had at that time: by both, a record that is missing is noticed, and what cannot
be told exactly any more is no deployment.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    made: Entry = {"fleet": fleet, "spec": spec, "env": unit.env_text(), "release": unit.release}
    return {**made, "secret": sorted(unit.secret)} if unit.secret else made


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
    return DesiredUnit(unit, spec, env, live, found["release"], frozenset(found.get("secret", ())))


@dataclass(frozen=True)
class Deployment:
    """`hosts` are the records of those hosts that have units: host -> unit -> entry.

    `also` are ids of older deployments that were just the same; `serves`: it is the newest one.
    """

    id: str
    serial: int
    at: float
    by: str
    what: str
    hosts: dict[str, dict[str, Entry]]
    model: dict[str, str]
    also: tuple[str, ...] = ()
    serves: bool = False

    def units(self) -> Iterable[tuple[str, Entry]]:
        for units in self.hosts.values():
            yield from units.items()

    @property
    def releases(self) -> list[str]:
        return sorted({e["release"] for _, e in self.units() if e["release"]})

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.id, *self.also)

    def same(self, other: Deployment) -> bool:
        return (self.hosts, self.model) == (other.hosts, other.model)


def record(
    author: Author,
    fleet: Fleet,
    host: str,
    units: Mapping[str, Entry],
    newest: Entry | None,
    beside: Mapping[str, str],
) -> Entry:
    """The record that follows `newest` on `host`, or replaces it when that is of the same author."""
    before: str | None = ""
    if newest is not None:
        before = newest.get("before") if newest["id"] == author.id else newest["id"]
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
        "model": {"path": fleet.model.path, "name": fleet.model.name},
        "before": before,
        "beside": dict(beside),
        "units": dict(units),
    }


def serving(newest: Mapping[str, Entry | None]) -> Deployment | None:
    """What each host recorded last, taken together (host -> record); None where nothing is recorded."""
    there = {host: found for host, found in newest.items() if found is not None}
    return _joined(there) if there else None


Records = Mapping[str, Sequence[Entry]]
Mark = tuple[int, str]  # serial and id, in whose order deployments are


def deployments(records: Records, silent: Iterable[str] = ()) -> list[Deployment]:
    """Those of which every record is there, each as it served, newest first (host -> its records, oldest
    first). What is the same as a newer one is that one.

    A host that a run did not touch keeps its older record, which is then part of that deployment too.
    `silent` are hosts whose records are not known; the rest is judged without them.
    """
    made: list[Deployment] = []
    for number, (found, gone) in enumerate(_all(records, set(silent))):
        if gone:
            continue
        twin = next((n for n, other in enumerate(made) if other.same(found)), None)
        if twin is None:
            made.append(replace(found, serves=number == 0))
        else:
            made[twin] = replace(made[twin], also=(*made[twin].also, found.id))
    return made


def lost(records: Records, silent: Iterable[str] = ()) -> dict[str, list[str]]:
    """Deployments that cannot be told any more -> hosts where a record of it is missing."""
    return {found.id: gone for found, gone in _all(records, set(silent)) if gone}


def oldest_kept(records: Records, keep: int) -> Mark:
    """Serial and id of the oldest deployment to be kept, so that `keep` others stay beside the newest."""
    kept: list[Deployment] = []
    oldest = (0, "")
    for found, gone in _all(records, set()):
        if not gone and not any(found.same(other) for other in kept):
            if len(kept) > keep:
                break
            kept.append(found)
        oldest = (found.serial, found.id)
    return oldest


def _order(record: Entry) -> Mark:
    return record["serial"], record["id"]


def _all(records: Records, silent: set[str]) -> Iterator[tuple[Deployment, list[str]]]:
    """Newest first, each with the hosts whose part in it is not known."""
    for mark in sorted({_order(r) for found in records.values() for r in found}, reverse=True):
        there, gone = {}, set()
        for host, found in records.items():
            upto = [r for r in found if _order(r) <= mark]
            behind = found[len(upto) :]
            if behind and behind[0].get("before") != (upto[-1]["id"] if upto else ""):
                gone.add(host)
            if upto:
                there[host] = upto[-1]
        for made in there.values():
            gone |= {
                h for h, id in made.get("beside", {}).items() if _lacks(records, there, mark, made, h, id)
            }
        yield _joined(there), sorted(gone - silent)


def _lacks(records: Records, there: Mapping[str, Entry], mark: Mark, made: Entry, host: str, id: str) -> bool:
    """Whether `host` has not the record `id` that stood beside `made` in the deployment at `mark`."""
    if _order(made) == mark:
        # A later group of the same run may have written it anew.
        return host not in there or there[host]["id"] not in (id, made["id"])
    # An older record is one of a whole run, unless that was cut off while it recorded.
    if id != made["id"] or not records.get(host):
        return host in records and not records[host]
    return _order(records[host][0]) <= _order(made) and id not in [r["id"] for r in records[host]]


def _joined(there: Mapping[str, Entry]) -> Deployment:
    last = max(there.values(), key=_order)
    hosts = {host: found["units"] for host, found in there.items() if found["units"]}
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
