"""The fleet as the rest of pdctl sees it: names resolved, paths absolute, nothing left to validate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pdctl.errors import ConfigError
from pdctl.fleet.command import arguments
from pdctl.fleet.names import nearest
from pdctl.fleet.schema import EngineTable, FleetFile, HostTable, ModelTable, RouterTable


@dataclass(frozen=True)
class Host:
    """`file` is the fleet file that names it, None where it is of none."""

    name: str
    spec: HostTable
    root: str
    file: Path | None = None

    @property
    def address(self) -> str:
        return self.spec.address

    @property
    def local(self) -> bool:
        """This machine."""
        return self.spec.transport == "local"

    @property
    def runtime(self) -> str:
        return self.spec.runtime or ("existing" if self.local else "index")

    @property
    def tool_python(self) -> str:
        """Runs pdctl's host tools, which need Python 3.9 and nothing installed in it."""
        return self.spec.python or (sys.executable if self.local else "/usr/bin/python3")


@dataclass(frozen=True)
class HostPaths:
    """Where things lie on a host; plain strings because the host may be another machine."""

    root: str

    def tree(self, id: str) -> str:
        return f"{self.root}/trees/{id}"

    def deployment(self, id: str) -> str:
        return f"{self.root}/deployments/{id}.json"

    def unit(self, name: str) -> str:
        return f"{self.root}/units/{name}.json"

    def env(self, name: str) -> str:
        return f"{self.root}/env/{name}.env"

    def log(self, name: str) -> str:
        return f"{self.root}/log/{name}.log"

    def run(self, name: str) -> str:
        return f"{self.root}/run/{name}.json"


# The keys of a bundled engine's table that are arguments of its command, in their order.
_SETTINGS = ("tp", "dtype", "device", "page_size", "pages", "max_running", "token_budget")


@dataclass(frozen=True)
class Engine:
    """One engine; `address` is the host's, where its router and peers reach it."""

    name: str
    cell: str
    host: str
    address: str
    profile: str
    spec: EngineTable

    @property
    def keys(self) -> tuple[str, ...]:
        """Its table in the fleet file."""
        return ("cells", self.cell, "engines", self.name)

    @property
    def role(self) -> str:
        return self.spec.role

    @property
    def kind(self) -> str:
        return self.spec.kind

    @property
    def port(self) -> int:
        return self.spec.port

    @property
    def bootstrap_port(self) -> int | None:
        return self.spec.bootstrap_port

    @property
    def tp(self) -> int:
        return self.spec.tp

    @property
    def arguments(self) -> dict[str, str]:
        """Flag -> value of what the fleet file says of its command line, "true" for a flag alone; numbers
        that are left out are left to the engine. What follows from where it stands is not in it."""
        if self.kind != "bundled":
            return arguments(self.spec.command or ())
        given = {key: getattr(self.spec, key) for key in _SETTINGS}
        found = {
            f"--{key.replace('_', '-')}": str(value) for key, value in given.items() if value is not None
        }
        return found | ({"--legacy-bootstrap": "true"} if self.spec.legacy_bootstrap else {})

    @property
    def env(self) -> dict[str, str]:
        return self.spec.env

    @property
    def url(self) -> str:
        return http_url(self.address, self.port)

    @property
    def bootstrap(self) -> str | None:
        return None if self.bootstrap_port is None else f"{self.address}:{self.bootstrap_port}"

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,) if self.bootstrap_port is None else (self.port, self.bootstrap_port)


@dataclass(frozen=True)
class Router:
    name: str
    host: str
    address: str
    profile: str
    spec: RouterTable

    role = "router"
    keys: ClassVar[tuple[str, ...]] = ("router",)

    @property
    def kind(self) -> str:
        return self.spec.kind

    @property
    def port(self) -> int:
        return self.spec.port

    @property
    def arguments(self) -> dict[str, str]:
        """As an engine's; the bundled one has none of its own in the fleet file."""
        return arguments(self.spec.command or ())

    @property
    def env(self) -> dict[str, str]:
        return self.spec.env

    @property
    def url(self) -> str:
        return http_url(self.address, self.port)

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)


def http_url(address: str, port: int) -> str:
    """An IPv6 address stands in brackets."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def no_router(host: str) -> RouterTable:
    """Stands where a fleet file names no router: of kind none, which is never started or asked."""
    return RouterTable.model_construct(host=host, port=0, kind="none")


@dataclass(frozen=True)
class Cell:
    name: str
    engines: tuple[Engine, ...]

    @property
    def prefills(self) -> tuple[Engine, ...]:
        return tuple(e for e in self.engines if e.role == "prefill")

    @property
    def decodes(self) -> tuple[Engine, ...]:
        return tuple(e for e in self.engines if e.role == "decode")

    @property
    def edges(self) -> tuple[tuple[Engine, Engine], ...]:
        return tuple((p, d) for p in self.prefills for d in self.decodes)


@dataclass(frozen=True)
class FleetPaths:
    """pdctl's own files, beside the fleet file on the operator's machine."""

    dir: Path

    @property
    def state(self) -> Path:
        return self.dir / ".pdctl"

    @property
    def token(self) -> Path:
        return self.state / "token"

    @property
    def drill_token(self) -> Path:
        return self.state / "drill-token"

    @property
    def journal(self) -> Path:
        return self.state / "journal.db"

    @property
    def recovery(self) -> Path:
        """What a run is about to change, while there is one."""
        return self.state / "recovery.json"

    @property
    def evidence(self) -> Path:
        return self.state / "evidence"

    @property
    def supervisor(self) -> Path:
        """What the supervisor saw and did: history, incidents, actions."""
        return self.state / "supervisor.db"

    @property
    def page_token(self) -> Path:
        """For those who read the supervisor's pages from another machine."""
        return self.state / "page-token"

    @property
    def policy(self) -> Path:
        return self.dir / "policy.toml"

    @property
    def profiles(self) -> Path:
        return self.dir / "profiles"


@dataclass(frozen=True)
class Fleet:
    path: Path
    spec: FleetFile
    model: ModelTable
    hosts: dict[str, Host]
    cells: dict[str, Cell]
    router: Router

    @property
    def name(self) -> str:
        return self.spec.fleet.name

    @property
    def drill(self) -> bool:
        return self.spec.fleet.drill

    @property
    def dir(self) -> Path:
        return self.path.parent

    @property
    def paths(self) -> FleetPaths:
        return FleetPaths(self.dir)

    def host_paths(self, host: str) -> HostPaths:
        return HostPaths(self.hosts[host].root)

    def engines(self) -> Iterator[Engine]:
        for cell in self.cells.values():
            yield from cell.engines

    def units(self) -> tuple[Engine | Router, ...]:
        """In the order they are started: prefills, decodes, whole engines, router."""
        order = {"prefill": 0, "decode": 1, "both": 2}
        engines = sorted(self.engines(), key=lambda e: order[e.role])
        return (*engines, self.router) if self.router.kind != "none" else tuple(engines)

    def unit(self, name: str) -> Engine | Router:
        """The engine or router called `name`; ConfigError with the nearest name."""
        for unit in self.units():
            if unit.name == name:
                return unit
        names = [u.name for u in self.units()]
        raise ConfigError("unknown_unit", f"There is no unit {name!r} in this fleet.", nearest(name, names))

    def engine(self, name: str) -> Engine:
        for engine in self.engines():
            if engine.name == name:
                return engine
        names = [e.name for e in self.engines()]
        raise ConfigError("unknown_unit", f"There is no engine {name!r} in this fleet.", nearest(name, names))

    @property
    def control(self) -> str:
        """The host that holds the fleet's lock."""
        return self.spec.fleet.control or self.router.host

    def edges(self) -> tuple[tuple[Engine, Engine], ...]:
        return tuple(edge for cell in self.cells.values() for edge in cell.edges)
