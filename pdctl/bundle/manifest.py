"""manifest.json and fleet.json: what pdctl asked for a bundle, and what the fleet file declares; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pdctl import contracts
from pdctl.adapters.endpoints import Server
from pdctl.diagnose.facts import HalfWay, Left, Suppression
from pdctl.errors import ConfigError
from pdctl.facts.missing import Missing

MANIFEST, FLEET = "manifest.json", "fleet.json"


@dataclass(frozen=True)
class Asked:
    """One question. `of` is a party or a host, `name` the answer's kind ("state", "facts"), `where` a URL.

    `sample` is 1 or 2, 0 for what is asked once; `at` Unix seconds; `outcome` a Reach, or failed; `detail`
    why it failed; `document` the file that holds the answer, "" where there is none.
    """

    of: str
    name: str
    where: str
    sample: int
    at: float
    seconds: float
    bytes: int
    outcome: str
    detail: str = ""
    document: str = ""


@dataclass(frozen=True)
class Skipped:
    of: str
    name: str
    why: str


@dataclass(frozen=True)
class Manifest:
    """`samples` are the times of both samples (Unix seconds), `gap` what lay between them, `since` how many
    seconds of logs were asked for, `run` the words of who holds the fleet's lock, "" for nobody; `half_way`
    is the newest run when it is a co-restart that was not ended, `left` what a run that is gone set and left.
    """

    pdctl: str
    samples: tuple[float, float]
    seconds: float
    since: float
    run: str | Missing
    asked: tuple[Asked, ...]
    skipped: tuple[Skipped, ...]
    pseudonyms: bool = False
    half_way: HalfWay | None = None
    left: Left | None = None

    @property
    def at(self) -> float:
        return self.samples[1]

    @property
    def gap(self) -> float:
        return round(self.samples[1] - self.samples[0], 3)

    def to_json(self) -> str:
        document = {
            "schema": 1,
            "pdctl": self.pdctl,
            "samples": list(self.samples),
            "seconds": self.seconds,
            "since": self.since,
            "pseudonyms": self.pseudonyms,
            "run": _said(self.run),
            "half_way": asdict(self.half_way) if self.half_way else None,
            "left": asdict(self.left) if self.left else None,
            "asked": [asdict(a) for a in self.asked],
            "skipped": [asdict(s) for s in self.skipped],
        }
        return json.dumps(document, indent=1) + "\n"


@dataclass(frozen=True)
class Declared:
    """One unit of the fleet file. `expected` is its profile's environment, secrets as digests; `places` says
    which file and line each value is from, and under "" where the unit is declared.
    """

    server: Server
    cell: str
    host: str
    expected: Mapping[str, str] | Missing
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.server.name


@dataclass(frozen=True)
class FleetPage:
    """What the fleet file declares. `hosts` is name -> address."""

    fleet: str
    drill: bool
    hosts: Mapping[str, str]
    members: tuple[Declared, ...]
    suppressions: tuple[Suppression, ...] = ()

    def to_json(self) -> str:
        members = [
            {
                **asdict(m.server),
                "cell": m.cell,
                "host": m.host,
                "expected": _said(m.expected),
                "places": dict(m.places),
            }
            for m in self.members
        ]
        hosts = {name: {"address": address} for name, address in self.hosts.items()}
        document = {
            "schema": 1,
            "fleet": self.fleet,
            "drill": self.drill,
            "hosts": hosts,
            "members": members,
            "suppress": [asdict(s) for s in self.suppressions],
        }
        return json.dumps(document, indent=1) + "\n"


def _said(value: Any) -> Any:
    return {"missing": value.reason} if isinstance(value, Missing) else value


def _heard(value: Any) -> Any:
    return Missing(value["missing"]) if isinstance(value, dict) and "missing" in value else value


def _document(name: str, text: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ConfigError("bad_bundle", f"{name} of the bundle is not JSON: {error}.") from None
    found = contracts.faults("bundle_" + name.removesuffix(".json"), document)
    if found:
        message = f"{name} of the bundle is not as pdctl writes it."
        raise ConfigError("bad_bundle", message, "docs/bundle.md says what is in it.", details=found)
    return document


def read_manifest(text: str) -> Manifest:
    """ConfigError when it is not one."""
    d = _document(MANIFEST, text)
    return Manifest(
        pdctl=d["pdctl"],
        samples=(d["samples"][0], d["samples"][1]),
        seconds=d["seconds"],
        since=d["since"],
        run=_heard(d["run"]),
        asked=tuple(Asked(**{k: a[k] for k in Asked.__dataclass_fields__}) for a in d["asked"]),
        skipped=tuple(Skipped(s["of"], s["name"], s["why"]) for s in d["skipped"]),
        pseudonyms=d["pseudonyms"],
        half_way=HalfWay(**d["half_way"]) if d.get("half_way") else None,
        left=Left(**d["left"]) if d.get("left") else None,
    )


def read_fleet(text: str) -> FleetPage:
    """ConfigError when it is not one."""
    d = _document(FLEET, text)
    members = tuple(
        Declared(
            Server(**{k: m[k] for k in Server.__dataclass_fields__}),
            m["cell"],
            m["host"],
            _heard(m["expected"]),
            m.get("places", {}),
        )
        for m in d["members"]
    )
    hosts = {name: host["address"] for name, host in d["hosts"].items()}
    suppressions = tuple(Suppression(**row) for row in d.get("suppress", []))
    return FleetPage(d["fleet"], d["drill"], hosts, members, suppressions)
