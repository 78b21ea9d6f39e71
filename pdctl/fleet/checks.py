"""What a fleet file says that types cannot see: names that must exist, ports that must differ."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.fleet.catalogue import known
from pdctl.fleet.foreign import check_foreign
from pdctl.fleet.names import nearest
from pdctl.fleet.problems import Keys, TomlFile
from pdctl.fleet.schema import EngineTable, FleetFile, HostTable, RouterTable

ROUTER: Keys = ("router",)


def check_fleet(file: TomlFile, spec: FleetFile) -> None:
    """Note every problem in `file`; nothing is raised here."""
    _hosts(file, spec)
    _ports(file, spec)
    _names(file, spec)
    _profiles(file, spec)
    for name, cell in spec.cells.items():
        _cell(file, ("cells", name), cell.engines)
    check_foreign(file, spec, list(_units(spec)))
    for keys, unit in _units(spec):
        for env, text in unit.env.items():
            variable = known().get(env)
            if variable is not None and (why := variable.problem(text)):
                file.problem((*keys, "env", env), why)
            elif variable is None and env.startswith("PD_"):
                file.problem((*keys, "env", env), f"unknown variable. {nearest(env, known())}")


def _units(spec: FleetFile) -> Iterator[tuple[Keys, EngineTable | RouterTable]]:
    for cell, table in spec.cells.items():
        for name, engine in table.engines.items():
            yield ("cells", cell, "engines", name), engine
    if spec.router is not None:
        yield ROUTER, spec.router


def _hosts(file: TomlFile, spec: FleetFile) -> None:
    for name, host in spec.hosts.items():
        _host(file, ("hosts", name), host)
    for keys, unit in _units(spec):
        if unit.host not in spec.hosts:
            file.problem((*keys, "host"), f"there is no such host. {nearest(unit.host, spec.hosts)}")
    control = spec.fleet.control
    if control is not None and control not in spec.hosts:
        file.problem(("fleet", "control"), f"there is no such host. {nearest(control, spec.hosts)}")


def _host(file: TomlFile, keys: Keys, host: HostTable) -> None:
    if host.transport == "local":
        for key in ("ssh", "user", "port", "identity_file"):
            if getattr(host, key) is not None:
                file.problem((*keys, key), 'is for transport = "ssh"; this host is local.')
        return
    if _loopback(host.address):
        file.problem(
            (*keys, "address"), f"is {host.address}; peers and routers need one that they can reach."
        )
    if host.units == "process":
        file.problem((*keys, "units"), "process is for this machine; hosts over SSH run systemd.")
    if host.root is not None and not host.root.startswith("/"):
        file.problem((*keys, "root"), f"{host.root} is no absolute path.")
    if host.scope == "user" and host.root is None:
        file.problem((*keys, "root"), 'is needed with scope = "user": a folder that the user may write.')
    if host.runtime == "existing" and host.python is None:
        file.problem((*keys, "python"), 'is needed with runtime = "existing": the Python that runs engines.')
    if host.wheels is not None and host.runtime != "wheelhouse":
        file.problem((*keys, "wheels"), 'is for runtime = "wheelhouse".')


def _loopback(address: str) -> bool:
    return address == "localhost" or address.startswith("127.") or address in ("::1", "0.0.0.0", "::")


def _ports(file: TomlFile, spec: FleetFile) -> None:
    seen: dict[tuple[str, int], Keys] = {}
    for keys, unit in _units(spec):
        ports = {"port": unit.port, "bootstrap_port": getattr(unit, "bootstrap_port", None)}
        for field, port in ports.items():
            if port is None:
                continue
            at = (*keys, field)
            # Two names may stand for one machine, so hosts are told apart by address.
            host = spec.hosts[unit.host].address if unit.host in spec.hosts else unit.host
            first = seen.setdefault((host, port), at)
            if first != at:
                taken = f"{'.'.join(first)}, line {file.line(*first)}"
                file.problem(at, f"{port} on this host is already {taken}.")


def _names(file: TomlFile, spec: FleetFile) -> None:
    seen: dict[str, Keys] = {}
    for keys, unit in _units(spec):
        name = unit.name if isinstance(unit, RouterTable) else keys[-1]
        first = seen.setdefault(name, keys)
        if first != keys:
            file.problem(keys, f"the name {name} is taken by {'.'.join(first)}, line {file.line(*first)}.")


def _profiles(file: TomlFile, spec: FleetFile) -> None:
    folder = file.path.parent / "profiles"
    present = {p.stem for p in folder.glob("*.toml")}
    uses: list[tuple[Keys, str]] = [(("fleet", "profile"), spec.fleet.profile)]
    uses += [((*keys, "profile"), unit.profile) for keys, unit in _units(spec) if unit.profile]
    for keys, name in uses:
        if name not in present:
            file.problem(keys, f"there is no profile {name} in {folder}. {nearest(name, present)}".strip())


# What both sides of an edge must hold equal; the engine's own default stands where a key is left out.
_SHARED: dict[str, object] = {"page_size": 16, "dtype": "float32"}


def _agree(file: TomlFile, keys: Keys, engines: dict[str, EngineTable]) -> None:
    """Engines of one cell exchange KV pages, so their shape is one: the first engine's counts."""
    for field, default in _SHARED.items():
        values = {name: getattr(engine, field) or default for name, engine in engines.items()}
        first = next(iter(values), "")
        for name, value in values.items():
            if value != values[first]:
                text = f"is {value}, but {first} of this cell has {values[first]}; no KV could pass."
                file.problem((*keys, "engines", name, field), text)


def _cell(file: TomlFile, keys: Keys, engines: dict[str, EngineTable]) -> None:
    roles = [e.role for e in engines.values()]
    # Engines that pdctl did not design may have their other side in a place that this file does not name.
    foreign = all(e.kind != "bundled" for e in engines.values())
    if not engines:
        file.problem(keys, "has no engines.")
    elif foreign:
        pass
    elif "decode" in roles and "prefill" not in roles:
        file.problem(keys, "has a decode and no prefill to hand it KV.")
    elif "prefill" in roles and "decode" not in roles:
        file.problem(keys, "has a prefill and no decode to hand its KV to.")
    _agree(file, keys, engines)
    for name, engine in engines.items():
        at = (*keys, "engines", name)
        if engine.kind == "bundled" and engine.role == "prefill" and engine.bootstrap_port is None:
            file.problem((*at, "bootstrap_port"), "is missing; a prefill listens there for its decodes.")
        if engine.role != "prefill" and engine.bootstrap_port is not None:
            file.problem((*at, "bootstrap_port"), f"only a prefill has one; this is {engine.role}.")
