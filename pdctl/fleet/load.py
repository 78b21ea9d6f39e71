"""Read fleet.toml: validate, cross-check, resolve; every problem is reported at once."""

from __future__ import annotations

import os
from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.fleet.checks import check_fleet
from pdctl.fleet.model import Cell, Engine, Fleet, Host, Router, no_router
from pdctl.fleet.problems import TomlFile
from pdctl.fleet.schema import FleetFile, HostTable


def fleet_path(given: str | None = None) -> Path:
    """--fleet, then PDCTL_FLEET, then ./fleet.toml; a folder means the fleet.toml inside it.

    Its folder has one name, however it was reached (`..`, a link, the current folder): paths below it go
    into units and env files, where another spelling would be a change that restarts engines. Links are
    followed because `..` behind one is another folder than it reads. The file itself may be a link.
    """
    named = Path(given or os.environ.get("PDCTL_FLEET") or "fleet.toml").expanduser()
    path = named / "fleet.toml" if named.is_dir() else named
    try:
        return Path(os.path.realpath(path.parent)) / path.name
    except FileNotFoundError:
        raise ConfigError(
            "no_folder", "The current folder is gone.", "Change to the fleet's folder."
        ) from None


def load_fleet(given: str | Path | None = None, secrets: bool = True) -> Fleet:
    """The fleet, or ConfigError whose details are all problems as file:line: path: sentence.

    `secrets`: whether those that units name must be there.
    """
    path = fleet_path(str(given) if given is not None else None)
    if not path.exists():
        raise ConfigError(
            "no_fleet",
            f"There is no fleet file at {path}.",
            "Run `pdctl init --local`, or pass --fleet PATH.",
        )
    file = TomlFile(path)
    spec = file.validate(FleetFile)
    if spec is not None:
        check_fleet(file, spec, secrets)
    file.finish("bad_fleet", f"The fleet file {path}")
    if spec is None:
        raise ConfigError("bad_fleet", f"The fleet file {path} is not valid.")
    return _resolve(path, spec)


def _resolve(path: Path, spec: FleetFile) -> Fleet:
    base = path.parent
    hosts = {
        name: Host(name, table, _root(base, spec.fleet.name, name, table), path)
        for name, table in spec.hosts.items()
    }
    default = spec.fleet.profile
    cells = {
        cell: Cell(
            cell,
            tuple(
                Engine(name, cell, table.host, hosts[table.host].address, table.profile or default, table)
                for name, table in cell_table.engines.items()
            ),
        )
        for cell, cell_table in spec.cells.items()
    }
    table = spec.router or no_router(next(iter(hosts)))
    router = Router(table.name, table.host, hosts[table.host].address, table.profile or default, table)
    model = spec.model
    if any(engine.kind == "bundled" for cell in cells.values() for engine in cell.engines):
        weights = (base / Path(spec.model.path).expanduser()).absolute()
        model = spec.model.model_copy(update={"path": str(weights)})
    return Fleet(path, spec, model, hosts, cells, router)


def _root(base: Path, fleet: str, name: str, table: HostTable) -> str:
    if table.transport == "local":
        return str((base / Path(table.root or f".pdctl/host/{name}").expanduser()).absolute())
    return table.root or f"/opt/pdctl/{fleet}"
