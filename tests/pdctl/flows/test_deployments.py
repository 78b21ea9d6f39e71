"""Deployments put together from what hosts recorded: exactly what served, or not listed at all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.fleet.model import Fleet
from pdctl.flows.deploy.deployment import Author, Deployment, deployments, lost, oldest_kept, wanted
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.deploy.gate import record_steps
from pdctl.flows.deploy.group import Group, groups_of
from pdctl.flows.init import Wanted, init_fleet
from pdctl.release.hosttool import needed
from pdctl.units.spec import UnitSpec
from tests.pdctl.models import model_folder

HOSTS = ("h1", "h2", "h3")
ENGINE = '[cells.{cell}.engines.{name}]\nrole = "{role}"\nhost = "{host}"\nport = {port}\n'


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Cell a over h1 and h2, cell b on h3, the router on h1."""
    model_folder(tmp_path / "model")
    path = tmp_path / "fleet.toml"
    init_fleet(path, Wanted("test", str(tmp_path / "model")))
    head, _, _ = path.read_text().partition("[hosts.")
    tables = [f'[hosts.{h}]\ntransport = "local"\n' for h in HOSTS]
    places = (("a", "prefill", "h1"), ("a", "decode", "h2"), ("b", "prefill", "h3"), ("b", "decode", "h3"))
    for number, (cell, role, host) in enumerate(places):
        port = 21000 + 10 * number
        tables.append(ENGINE.format(cell=cell, name=f"{role}-{cell}", role=role, host=host, port=port))
        tables += [f"bootstrap_port = {port + 1}\n"] if role == "prefill" else []
    path.write_text(head + "".join(tables) + '[router]\nhost = "h1"\nport = 21100\n')
    return load_fleet(path)


@dataclass
class Host:
    name: str
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def newest(self) -> dict[str, Any] | None:
        return self.records[-1] if self.records else None

    @newest.setter
    def newest(self, made: dict[str, Any]) -> None:
        self.records = [r for r in self.records if r["id"] != made["id"]] + [made]

    def put(self, *_: object) -> None:
        """Records are kept as they are set."""


@dataclass
class Seen:
    hosts: dict[str, Host]


class Served:
    """What serves, changed through the steps of a deploy that keep the records, and what served at each."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.hosts = {name: Host(name) for name in HOSTS}
        self.now: dict[str, int] = {}
        self.truth: dict[str, dict[str, int]] = {}
        self.count = 0

    # of a context and of the states of hosts, what the steps use

    def transport(self, name: str) -> Host:
        return self.hosts[name]

    def unit(self, name: str, version: int) -> DesiredUnit:
        place = self.fleet.unit(name)
        spec = UnitSpec(name, ("engine", str(version)), f"{name}.env", "/", "log", "run", inputs=str(version))
        return DesiredUnit(place, spec, {"VERSION": str(version)}, {}, f"release-{version}")

    def serve(
        self, wanted: dict[str, int], only: Iterable[str], broken: str = "", killed: bool = False
    ) -> str:
        """Group after group of those in `only`, until `broken`, where no new record can be written: the
        group is then put back, unless the deploy is `killed` there."""
        self.count += 1
        author = Author(f"d{self.count:03}", self.count, "me", "deploy", "")
        before = dict(self.now)
        every = groups_of(self.fleet, {n: self.unit(n, v) for n, v in wanted.items()})
        groups = [g for g in every if g.key in only and g.units]
        near = {"h1", *(h for g in groups for h in g.hosts)}
        seen = Seen({h: s for h, s in self.hosts.items() if h in near})
        for group in groups:
            done = self.record(seen, group, author, broken)
            if not done and killed:
                break
            if not done:
                units = tuple(self.unit(u.name, before[u.name]) for u in group.units)
                assert self.record(seen, replace(group, units=units), author, back=True)
                break
            self.now |= {u.name: wanted[u.name] for u in group.units}
            self.truth[author.id] = dict(self.now)
        self.truth.setdefault(author.id, dict(self.now)) if not killed else None
        return author.id

    def record(self, seen: Seen, group: Group, author: Author, broken: str = "", back: bool = False) -> bool:
        """Written on every host at once, as a wave is: also on those behind the broken one."""

        def belongs(entry: dict[str, Any]) -> bool:
            return group.recorded(entry, list(self.fleet.cells))

        about = (self, seen, group.units, author, group.key, belongs, back)
        steps = record_steps(*about)  # type: ignore[arg-type]
        for step in steps:
            if step.host != broken:
                step.apply()
        return not any(step.host == broken and step.check() for step in steps)

    def listed(self) -> list[Deployment]:
        return deployments({h: s.records for h, s in self.hosts.items()})

    def prune(self, keep: int, hosts: Iterable[str] = HOSTS) -> None:
        oldest = oldest_kept({h: s.records for h, s in self.hosts.items()}, keep)
        for name in hosts:
            self.hosts[name].records = needed(self.hosts[name].records, json.loads(json.dumps(oldest)))


def versions(found: Deployment) -> dict[str, int]:
    return {name: int(wanted(name, entry).env["VERSION"]) for name, entry in found.units()}


GROUPS = ("cell a", "cell b", "router")
NAMES = ("prefill-a", "decode-a", "prefill-b", "decode-b", "router")


def exact(served: Served) -> None:
    for found in served.listed():
        for id in found.ids:
            assert served.truth[id] == versions(found), id


@pytest.mark.parametrize("seed", range(40))
def test_what_is_listed_is_what_served(fleet: Fleet, seed: int) -> None:
    """Deploys of all and of a part, repairs, rollbacks, records that could not be written, prunes."""
    draw = random.Random(seed)
    served = Served(fleet)
    served.serve(dict.fromkeys(NAMES, 0), GROUPS)
    keep = draw.randint(0, 3)
    for _ in range(14):
        kinds = ["deploy", "limit", "repair", "back", "torn", "prune", "prune some"]
        kind = draw.choice(kinds)
        wish, only = dict(served.now), GROUPS
        if kind in ("deploy", "limit", "torn"):
            only = GROUPS if kind == "deploy" else draw.sample(GROUPS, draw.randint(1, 2))
            wish |= {name: draw.randint(0, 4) for name in draw.sample(NAMES, draw.randint(1, 5))}
        elif kind == "back":
            target = draw.choice(served.listed())
            wish = versions(target)
        if kind.startswith("prune"):
            served.prune(keep, HOSTS if kind == "prune" else draw.sample(HOSTS, 2))
            assert kind == "prune some" or len(served.listed()) <= keep + 1
        elif kind == "torn":
            killed = draw.random() < 0.5
            served.serve(wish, only, draw.choice(HOSTS), killed=killed)
            exact(served)
            if killed:  # it is run again
                served.serve(wish, only)
        else:
            served.serve(wish, only)
            if kind == "back":
                assert versions(served.listed()[0]) == wish, "what was gone back to serves"
                assert set(target.ids) <= {id for d in served.listed() for id in d.ids}
        exact(served)
    served.serve(served.now, GROUPS)
    assert versions(served.listed()[0]) == served.now and served.listed()[0].serves


def test_a_deployment_keeps_what_newer_ones_of_other_hosts_rest_on(fleet: Fleet) -> None:
    """Found on real hosts: h2 was back on what it had before, and the record between the two was needed."""
    served = Served(fleet)
    first = served.serve(dict.fromkeys(NAMES, 1), GROUPS)
    second = served.serve(dict.fromkeys(NAMES, 2), GROUPS)
    served.serve(served.now | {"prefill-b": 3, "decode-b": 3}, ("cell b",))
    back = served.serve(dict.fromkeys(NAMES, 1), GROUPS)
    served.prune(3)
    ids = [d.ids for d in served.listed()]
    assert ids == [(back, first), ("d003",), (second,)]
    served.prune(1)
    assert [d.ids for d in served.listed()] == [(back,), ("d003",)]
    assert versions(served.listed()[1]) == dict.fromkeys(NAMES[:2], 2) | {
        "prefill-b": 3,
        "decode-b": 3,
        "router": 2,
    }


def test_a_host_that_lost_its_records_takes_its_deployments_with_it(fleet: Fleet) -> None:
    served = Served(fleet)
    first = served.serve(dict.fromkeys(NAMES, 1), GROUPS)
    served.hosts["h2"].records.clear()
    second = served.serve(dict.fromkeys(NAMES, 2), GROUPS)
    records = {h: s.records for h, s in served.hosts.items()}
    assert [d.id for d in deployments(records)] == [second]
    assert lost(records) == {first: ["h2"]}
    assert [d.id for d in deployments({h: records[h] for h in ("h1", "h3")}, silent=["h2"])] == [
        second,
        first,
    ]


def test_records_of_an_older_pdctl_are_the_newest_deployment_alone(fleet: Fleet) -> None:
    """They do not say what came before them, so it is not known either."""
    served = Served(fleet)
    for version in (1, 2, 3):
        served.serve(dict.fromkeys(NAMES, version), GROUPS)
        if version < 3:
            for host in served.hosts.values():
                host.records = [
                    {k: v for k, v in r.items() if k not in ("before", "beside")} for r in host.records
                ]
    assert [versions(d)["router"] for d in served.listed()] == [3, 2]
