"""What the operator points at: scripts, unit files, units and processes, here or on a host."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pdctl.adopt.files import Files, Here, OnHost, Sourced
from pdctl.adopt.notes import Grade, Note
from pdctl.adopt.process import adopt_process, look
from pdctl.adopt.service import Service
from pdctl.adopt.shell.script import Followed, follow
from pdctl.adopt.shell.state import World
from pdctl.adopt.tables import names
from pdctl.adopt.unit import Unit
from pdctl.errors import ConfigError
from pdctl.transport.base import Transport, checked
from pdctl.transport.command import Command

DEADLINE = 30.0
_SHELLS = ("bash", "sh", "dash")
_SCRIPT = re.compile(r"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?(?:\S*/)?(bash|sh|dash)\b")
_UNIT_TEXT = re.compile(r"^\[(?:Unit|Service)\]\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """A host of the fleet to be, and how to look at it: `python` runs there, `remote` over SSH."""

    name: str
    transport: Transport
    python: str
    remote: bool

    @property
    def files(self) -> Files:
        return OnHost(self.transport) if self.remote else Here()


@dataclass(frozen=True)
class Given:
    """What the operator said beside the sources: values, names that are not set, and files."""

    answers: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    sourced: Mapping[str, str] = field(default_factory=dict)


def read_source(source: str, place: Place, given: Given) -> Followed:
    """Services and notes of one source; ConfigError when it cannot be had or read."""
    kind, colon, rest = source.partition(":")
    if colon and kind == "pid":
        return _process(rest, place)
    if colon and kind == "unit":
        return _unit(rest, _unit_parts(rest, place), place, given)
    path = source if place.remote else str(Path(source).expanduser())
    text = place.files.read(path)
    if text is None:
        hint = "A source is a script, a unit file, pid:NUMBER or unit:NAME."
        raise ConfigError("no_source", f"There is no file {source} {place.files.where}.", hint)
    if path.endswith(".service") or _UNIT_TEXT.search(text):
        return _unit(posixpath.basename(path), [(path, text), *_drop_ins(path, place.files)], place, given)
    whole = path if posixpath.isabs(path) or place.remote else str(Path(path).absolute())
    world = World(given.answers, given.unset, script=whole)
    return follow(source, text, world, Sourced(place.files, given.sourced, whole))


def _process(number: str, place: Place) -> Followed:
    if not number.isdigit():
        raise ConfigError("bad_source", f"pid:{number}: a pid is a number.")
    service, notes = adopt_process(look(place.transport, place.python, int(number)), f"pid:{number}")
    return Followed((service,), tuple(notes))


# units


def _drop_ins(path: str, files: Files) -> list[tuple[str, str]]:
    """Of a unit file that is not installed: NAME.service.d/*.conf beside it."""
    found = [f"{path}.d/{name}" for name in files.listed(f"{path}.d") if name.endswith(".conf")]
    return [(file, text) for file in found if (text := files.read(file)) is not None]


def _unit_parts(name: str, place: Place) -> list[tuple[str, str]]:
    """(file, text) of an installed unit and its drop-ins, of the machine's systemd or else the user's own."""
    full = name if "." in name else f"{name}.service"
    for scope in ((), ("--user",)):
        properties = ("-p", "LoadState", "-p", "FragmentPath", "-p", "DropInPaths")
        command = Command(("systemctl", *scope, "show", *properties, "--", full))
        result = place.transport.run(command, DEADLINE)
        if result.rc == 127:
            checked(place.transport, command, DEADLINE, "asking systemd")
        found = dict(line.split("=", 1) for line in result.text.splitlines() if "=" in line)
        if found.get("FragmentPath"):
            paths = [found["FragmentPath"], *found.get("DropInPaths", "").split()]
            texts = [(path, place.files.read(path)) for path in paths]
            return [(path, text) for path, text in texts if text is not None]
    raise ConfigError("no_unit", f"unit:{name}: there is no such unit on {place.name}.")


def _unit(name: str, parts: list[tuple[str, str]], place: Place, given: Given) -> Followed:
    unit = Unit(name if "." in name else f"{name}.service", place.files, given.answers, given.sourced)
    unit.read(parts)
    if (service := unit.service) is not None:
        return Followed((service,), tuple(unit.notes))
    return _script_of(unit, place, given)


def _script_of(unit: Unit, place: Place, given: Given) -> Followed:
    """The script that a unit's ExecStart runs, started with the unit's environment and folder."""
    argv = [w for w in unit.argv if isinstance(w, str)]
    if unit.start is None or len(argv) < len(unit.argv):
        return Followed((), tuple(unit.notes))
    at = f"{unit.start.file}:{unit.start.first}"
    world = World(
        given.answers,
        given.unset,
        env=unit.env,
        complete=True,
        ambient=names("systemd", "ambient"),
        cwd=unit.cwd if isinstance(unit.cwd, str) else None,
    )
    by_shell = argv[0].rpartition("/")[2] in _SHELLS
    if by_shell:
        argv, text = _shell_call(argv[1:], unit)
        if text is not None:
            world = replace(world, args=tuple(argv[1:]))
            followed = follow(at, text, world, Sourced(place.files, given.sourced, None))
            return _in_unit(unit, followed)
    script = argv[0] if argv else ""
    text = place.files.read(script) if script.startswith("/") else None
    if text is None or not (by_shell or _SCRIPT.match(text)):
        raise ConfigError(
            "no_engine", f"{at}: starts {script}, which is no engine and no script that is here."
        )
    world = replace(world, args=tuple(argv[1:]), script=script)
    return _in_unit(unit, follow(script, text, world, Sourced(place.files, given.sourced, script)))


def _shell_call(args: list[str], unit: Unit) -> tuple[list[str], str | None]:
    """(script and its arguments, text of -c) of what stands behind a shell's name."""
    while args and args[0].startswith("-") and args[0] != "--":
        option, *args = args
        if "l" in option.replace("--login", "l").lstrip("-") and unit.start is not None:
            said = "a login shell reads profiles first, and what they set is not known"
            unit.note(unit.start, Grade.OPEN, said)
        if not option.startswith("--") and option.endswith("c"):
            return args[1:], args[0] if args else ""
        if option == "-o":
            args = args[1:]
    return (args[1:] if args and args[0] == "--" else args), None


def _in_unit(unit: Unit, followed: Followed) -> Followed:
    services = [s if s.numa is not None else replace(s, numa=unit.numa) for s in followed.services]
    return Followed(tuple(services), (*unit.notes, *followed.notes))


def note_blocks(services: list[Service]) -> list[Note]:
    """A note for every value of a service that is not known: without it nothing can be written."""
    found: list[Note] = []
    for service in services:
        folder = [service.cwd] if service.cwd is not None else []
        for value in (*service.argv, *(s.value for s in service.env.values()), *folder):
            if not isinstance(value, str):
                note = Note(
                    value.file, value.line, value.line, Grade.MISSING, value.text, value.what, value.answer
                )
                found += [] if note in found else [note]
    return found
