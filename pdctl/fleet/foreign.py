"""What a fleet file may and must say of engines and routers that are not the bundled ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pdctl.fleet.command import Served, served
from pdctl.fleet.problems import Keys, TomlFile
from pdctl.fleet.schema import EngineTable, FleetFile, RouterTable
from pdctl.fleet.secretfile import read_secrets, references

Unit = tuple[Keys, EngineTable | RouterTable]
_BUNDLED = ("dtype", "device", "pages", "page_size", "max_running", "token_budget")


def check_foreign(file: TomlFile, spec: FleetFile, units: list[Unit], secrets: bool) -> None:
    """Note every problem in `file`; nothing is raised here. `secrets`: also what they have of theirs."""
    for keys, unit in units:
        if unit.kind == "bundled":
            _bundled(file, keys, unit)
            continue
        _own_keys(file, keys, unit)
        for key, sentence in secret_problems(file.path.parent, unit) if secrets else ():
            file.problem((*keys, key), sentence)
        if not unit.command or not unit.command[0]:
            file.problem((*keys, "command"), f"is missing: the whole command line of this {unit.kind}.")
        elif (found := served(unit.command)) is not None:
            for field, sentence in _disagreements(unit, found, spec):
                file.problem((*keys, field), sentence)
    _router(file, spec, units)


def _bundled(file: TomlFile, keys: Keys, unit: EngineTable | RouterTable) -> None:
    for key in ("command", "cwd", "secrets"):
        if getattr(unit, key) is not None:
            file.problem(
                (*keys, key), "is for another kind; the bundled one is started by pdctl's own command."
            )


def _own_keys(file: TomlFile, keys: Keys, unit: EngineTable | RouterTable) -> None:
    for key in _BUNDLED if isinstance(unit, EngineTable) else ():
        if getattr(unit, key) is not None:
            file.problem((*keys, key), f"is for the bundled engine; a {unit.kind} engine has it in command.")
    if isinstance(unit, EngineTable) and unit.legacy_bootstrap:
        file.problem((*keys, "legacy_bootstrap"), "is for the bundled engine.")
    if isinstance(unit, EngineTable) and unit.gpus is not None and "CUDA_VISIBLE_DEVICES" in unit.env:
        file.problem((*keys, "gpus"), "says what CUDA_VISIBLE_DEVICES in env says; keep one of them.")
    if unit.cwd is not None and not unit.cwd.startswith("/"):
        file.problem((*keys, "cwd"), "is no absolute path.")


def secret_problems(folder: Path, unit: EngineTable | RouterTable) -> Iterator[tuple[str, str]]:
    """(key, sentence): its secrets file below `folder` that cannot be used, names that its command lacks."""
    values: dict[str, tuple[str, int]] = {}
    if unit.secrets is not None:
        path = folder / Path(unit.secrets).expanduser()
        try:
            values = read_secrets(path)
        except ValueError as error:
            yield "secrets", str(error)
            return
        except OSError as error:
            yield "secrets", f"{path} cannot be read: {error.strerror}."
            return
    for name in references(unit.command or ()):
        if name not in values:
            yield "command", f"needs the secret {name}, which is in no file named by secrets."


def _disagreements(
    unit: EngineTable | RouterTable, found: Served, spec: FleetFile
) -> Iterator[tuple[str, str]]:
    """(key, sentence) where the fleet file and the command's own flags say different things."""
    if found.kind != unit.kind:
        yield "kind", f"is {unit.kind}, but command starts {found.kind}."
        return
    if not found.complete:
        return  # a --config file may say anything
    if unit.port != found.port:
        yield "port", f"is {unit.port}, but command listens on {found.port}."
    if isinstance(unit, RouterTable):
        return
    if found.role is not None and unit.role != found.role:
        yield "role", f"is {unit.role}, but command starts a {found.role}."
    if unit.tp != found.tp:
        yield "tp", f"is {unit.tp}, but command says {found.tp}."
    if found.kind == "sglang" and unit.role == "prefill" and unit.bootstrap_port != found.bootstrap_port:
        yield "bootstrap_port", f"is {unit.bootstrap_port}, but command listens on {found.bootstrap_port}."
    if found.model and found.model != spec.model.path:
        yield "command", f"serves {found.model}, but model.path is {spec.model.path}."
    if found.name and found.name != spec.model.name:
        yield "command", f"serves it as {found.name}, but model.name is {spec.model.name}."


def _router(file: TomlFile, spec: FleetFile, units: list[Unit]) -> None:
    engines = [unit for _, unit in units if isinstance(unit, EngineTable)]
    foreign = next((e.kind for e in engines if e.kind != "bundled"), None)
    if spec.router is None and any(e.kind == "bundled" for e in engines):
        file.problem(("router",), "is missing.")
    if spec.router is not None and spec.router.kind == "bundled" and foreign is not None:
        said = f"the bundled router knows no {foreign} engines"
        file.problem(("router",), f'{said}; give kind = "sglang-router" and its command, or leave it out.')
