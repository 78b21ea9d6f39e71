"""A running process: its words, environment, folder and binding, as the kernel has them."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

from pdctl.adopt.notes import Grade, Note
from pdctl.adopt.service import Service, Setting
from pdctl.adopt.tables import names
from pdctl.errors import ConfigError
from pdctl.fleet.command import entry
from pdctl.fleet.secret import masked
from pdctl.transport.base import Transport, checked
from pdctl.transport.command import Command

DEADLINE = 30.0
_CONTAINED = (
    "are a container's and not the host's, so this command is another one outside of it; adopt what starts "
    "the container (its unit, or a script with `docker run`)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def look(transport: Transport, python: str, pid: int) -> dict[str, Any]:
    """What hosttool.py says of it, asked again as root where the login may not read it."""
    tool = Path(__file__).with_name("hosttool.py").read_bytes()
    found: dict[str, Any] = {}
    for root in (False, True):
        command = Command((python, "-", str(pid)), stdin=tool, root=root)
        result = checked(transport, command, DEADLINE, f"looking at process {pid}")
        found = json.loads(result.text)
        if not found.get("denied"):
            break
    if "error" in found:
        raise ConfigError("no_process", f"pid:{pid}: {found['error']} on {transport.host}.")
    return found


def adopt_process(found: dict[str, Any], name: str) -> tuple[Service, list[Note]]:
    """ConfigError when it is no engine that pdctl knows; `name` is how the operator called it."""
    argv: list[str] = found["argv"]
    if not argv or entry(argv) is None:
        shown = masked(" ".join(argv))[:80] or "no command line"
        said = f"{name} is no engine or router that pdctl knows: {shown}."
        raise ConfigError("no_engine", said, _engines_below(found))
    notes: list[Note] = []
    env = _environment(found["env"], name, notes)
    _unreadable([*argv, found["cwd"], *(str(s.value) for s in env.values())], name)
    numa = _node(found, name, notes)
    if found["contained"]:
        notes.append(Note(name, 0, 0, Grade.OPEN, "its files", _CONTAINED))
    notes.append(Note(name, 0, 0, Grade.USED, " ".join(argv), "starts it"))
    return Service(tuple(argv), env, found["cwd"], numa, name, 0), notes


def _engines_below(found: dict[str, Any]) -> str:
    engines = [f"pid:{pid}" for pid, argv in found["children"] if entry(argv)]
    if engines:
        return f"Of its children these are: {', '.join(engines)}."
    return "Give the pid of the process that was started as `python -m …`, not of one of its workers."


def _unreadable(texts: list[str], name: str) -> None:
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError("not_text", f"{name}: an argument or variable is not UTF-8 text.") from None


def _environment(lines: list[str], name: str, notes: list[Note]) -> dict[str, Setting]:
    env: dict[str, Setting] = {}
    for line in lines:
        variable, equals, value = line.partition("=")
        session = any(fnmatch.fnmatchcase(variable, p) for p in names("process", "session"))
        if session:
            notes.append(
                Note(name, 0, 0, Grade.IDLE, variable, "belongs to its session and not to the engine")
            )
        elif not equals or not _NAME.fullmatch(variable):
            notes.append(Note(name, 0, 0, Grade.OPEN, variable, "is no variable that a profile can hold"))
        else:
            env[variable] = Setting(value, name, 0)
    return env


def _node(found: dict[str, Any], name: str, notes: list[Note]) -> int | None:
    """The node that it is bound to, CPUs and memory; any other placement is said."""
    policies, cpus = found["policies"], found["cpus"]
    bound = [p.partition(":")[2] for p in policies if p.startswith("bind:")]
    if len(policies) == 1 and len(bound) == 1 and cpus == found["nodes"].get(bound[0]):
        notes.append(Note(name, 0, 0, Grade.USED, f"{policies[0]}, CPUs {cpus}", f"numa = {bound[0]}"))
        return int(bound[0])
    if cpus != found["all_cpus"]:
        said = "a placement that `numa` does not stand for; start it with taskset or numactl in its command"
        notes.append(Note(name, 0, 0, Grade.OPEN, f"CPUs {cpus}", said))
    if any(p != "default" for p in policies):
        said = "a memory policy that `numa` does not stand for; start it with numactl in its command"
        notes.append(Note(name, 0, 0, Grade.OPEN, ", ".join(policies), said))
    if not policies:
        notes.append(Note(name, 0, 0, Grade.ASSUMED, "memory policy", "cannot be read; none was taken"))
    return None
