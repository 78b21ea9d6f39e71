"""What a fleet file says that types cannot see: names that must exist, ports that must differ."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from pdctl.fleet.catalogue import known, other_names, unit_problem
from pdctl.fleet.foreign import check_foreign
from pdctl.fleet.hosts import check_hosts
from pdctl.fleet.names import UNPRINTABLE, nearest, unprintable
from pdctl.fleet.problems import Keys, TomlFile
from pdctl.fleet.rules import rule_names
from pdctl.fleet.schema import EngineTable, FleetFile, RouterTable

ROUTER: Keys = ("router",)


def check_fleet(file: TomlFile, spec: FleetFile, secrets: bool = True) -> None:
    """Note every problem in `file`; nothing is raised here. `secrets`: those of units must be there."""
    _printable(file, (), file.data)
    check_hosts(file, spec)
    _placed(file, spec)
    _ports(file, spec)
    _names(file, spec)
    _profiles(file, spec)
    _suppressed(file, spec)
    for name, cell in spec.cells.items():
        _cell(file, ("cells", name), cell.engines, spec.fleet.drill)
    check_foreign(file, spec, list(_units(spec)), secrets)
    for keys, unit in _units(spec):
        for env, text in unit.env.items():
            variable = known().get(env)
            if variable is not None and (why := variable.problem(text)):
                file.problem((*keys, "env", env), why)
            elif env in other_names():
                if why := unit_problem(env, text):
                    file.problem((*keys, "env", env), why)
            elif variable is None and env.startswith("PD_"):
                hint = nearest(env, {*known(), *other_names()})
                file.problem((*keys, "env", env), f"unknown variable. {hint}")


def _suppressed(file: TomlFile, spec: FleetFile) -> None:
    for number, each in enumerate(spec.suppress):
        if each.code not in rule_names():
            # All the codes would be no help.
            near = difflib.get_close_matches(each.code, rule_names(), 1, 0.6)
            hint = f"Did you mean {near[0]}?" if near else "`pdctl explain` lists them."
            file.problem(("suppress", str(number), "code"), f"there is no rule {each.code}. {hint}")


def _units(spec: FleetFile) -> Iterator[tuple[Keys, EngineTable | RouterTable]]:
    for cell, table in spec.cells.items():
        for name, engine in table.engines.items():
            yield ("cells", cell, "engines", name), engine
    if spec.router is not None:
        yield ROUTER, spec.router


def _placed(file: TomlFile, spec: FleetFile) -> None:
    """Units are on hosts that there are, and what those must find there is named so that they can."""
    for keys, unit in _units(spec):
        if unit.host not in spec.hosts:
            file.problem((*keys, "host"), f"there is no such host. {nearest(unit.host, spec.hosts)}")
    remote = next((n for n, host in spec.hosts.items() if host.transport == "ssh"), None)
    if spec.model is not None and remote and not spec.model.path.startswith(("/", "~")):
        file.problem(("model", "path"), f"is relative to this file; {remote} needs an absolute path.")


def _printable(file: TomlFile, keys: Keys, value: object) -> None:
    """No word of a unit, an environment or a command may hold a line break, and none needs one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _printable(file, (*keys, key), inner)
    elif isinstance(value, list):
        for inner in value:
            _printable(file, keys, inner)
    elif isinstance(value, str) and unprintable(value):
        file.problem(keys, UNPRINTABLE)


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


# The engine's own defaults, which stand where a key is left out, and the fewest pages that it takes.
PAGES, PAGE_SIZE, _DTYPE, _MAX_RUNNING, _TOKEN_BUDGET = 1024, 16, "float32", 16, 512
_LEAST_PAGES = 4


def _agree(file: TomlFile, keys: Keys, engines: dict[str, EngineTable]) -> None:
    """Engines of one cell exchange KV: its dtype is the first engine's, and of the page sizes of two that
    pair one is a multiple of the other."""
    first = next(iter(engines), "")
    for name, engine in engines.items():
        mine, wanted = engine.dtype or _DTYPE, engines[first].dtype or _DTYPE
        if mine != wanted:
            text = f"is {mine}, but {first} of this cell has {wanted}; no KV could pass."
            file.problem((*keys, "engines", name, "dtype"), text)
        for peer, other in engines.items():
            small, large = sorted((engine.page_size or PAGE_SIZE, other.page_size or PAGE_SIZE))
            if (engine.role, other.role) == ("decode", "prefill") and large % small:
                text = f"is {engine.page_size or PAGE_SIZE}, but {peer} of this cell has "
                text += f"{other.page_size or PAGE_SIZE}; one must be a multiple of the other."
                file.problem((*keys, "engines", name, "page_size"), text)
                break


def _started(file: TomlFile, keys: Keys, engine: EngineTable, drill: bool) -> None:
    """What the bundled engine would refuse when it starts."""
    if engine.kind != "bundled":
        return
    if engine.legacy_bootstrap and not drill:
        file.problem((*keys, "legacy_bootstrap"), "is a drill: it needs drill = true under [fleet].")
    if engine.pages is not None and engine.pages < _LEAST_PAGES:
        file.problem((*keys, "pages"), f"must be at least {_LEAST_PAGES}.")
    running, budget = engine.max_running or _MAX_RUNNING, engine.token_budget or _TOKEN_BUDGET
    if budget < running:
        given = "max_running" if engine.max_running is not None else "token_budget"
        text = f"a step computes token_budget = {budget} tokens, which is below max_running = {running}: "
        file.problem((*keys, given), f"{text}it could not serve every sequence.")


def _cell(file: TomlFile, keys: Keys, engines: dict[str, EngineTable], drill: bool) -> None:
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
        _started(file, at, engine, drill)
        if engine.kind == "bundled" and engine.role == "prefill" and engine.bootstrap_port is None:
            file.problem((*at, "bootstrap_port"), "is missing; a prefill listens there for its decodes.")
        if engine.role != "prefill" and engine.bootstrap_port is not None:
            file.problem((*at, "bootstrap_port"), f"only a prefill has one; this is {engine.role}.")
