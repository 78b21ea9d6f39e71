"""An engine or a router as a source starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pdctl.adopt.notes import Value


@dataclass(frozen=True)
class Setting:
    """One variable that the process is given, and where that is said (line 0: nowhere in a file)."""

    value: Value
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Service:
    """`argv` is the whole command without what `numa` stands for; `cwd` is None where nobody says it."""

    argv: tuple[Value, ...]
    env: dict[str, Setting]
    cwd: Value | None
    numa: int | None
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def texts(self) -> list[str]:
        """argv with an empty text for every word that is not known."""
        return [w if isinstance(w, str) else "" for w in self.argv]


_BIND = re.compile(r"--cpunodebind=(\d+)|--membind=(\d+)")
_SHORT = {
    "-N": "--cpunodebind",
    "-m": "--membind",
    "--cpunodebind": "--cpunodebind",
    "--membind": "--membind",
}


def split_numactl(argv: Sequence[Value]) -> tuple[int | None, tuple[Value, ...]]:
    """(node, rest) of `numactl --cpunodebind=N --membind=N rest`; (None, argv) of anything else."""
    first = argv[0] if argv else ""
    if not isinstance(first, str) or first.rpartition("/")[2] != "numactl":
        return None, tuple(argv)
    nodes: dict[str, str] = {}
    at = 1
    while at < len(argv):
        word = argv[at]
        if not isinstance(word, str):
            return None, tuple(argv)
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if word in _SHORT and isinstance(following, str):
            word, at = f"{_SHORT[word]}={following}", at + 1
        found = _BIND.fullmatch(word)
        if found is None:
            break
        nodes[word.partition("=")[0]] = found[1] or found[2]
        at += 1
    rest = tuple(argv[at + 1 :] if at < len(argv) and argv[at] == "--" else argv[at:])
    plain = rest and isinstance(rest[0], str) and not rest[0].startswith("-")
    if len(nodes) == 2 and len(set(nodes.values())) == 1 and plain:
        return int(nodes["--membind"]), rest
    return None, tuple(argv)


# They pass on what they are given and leave no trace in the process that they become.
_THROUGH = ("nohup", "setsid", "command")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def unwrap(
    argv: Sequence[Value], env: Mapping[str, Setting], file: str, line: int
) -> tuple[int | None, tuple[Value, ...], dict[str, Setting]]:
    """(numa, command, environment) with the wrappers taken off that a fleet file has a word for.

    A wrapper that it has none for (taskset, sudo, env -i, another numactl) stays, with all behind it.
    """
    command, given, numa = tuple(argv), dict(env), None
    while command and isinstance(command[0], str):
        program = command[0].rpartition("/")[2]
        if program in _THROUGH and len(command) > 1 and not _is_option(command[1]):
            command = command[1:]
        elif program == "env":
            shorter = _env(command, given, Setting("", file, line))
            if shorter is None:
                break
            command = shorter
        elif program == "numactl" and numa is None:
            numa, rest = split_numactl(command)
            if numa is None:
                break
            command = rest
        else:
            break
    return numa, command, given


def _is_option(word: Value) -> bool:
    return not isinstance(word, str) or word.startswith("-")


def _env(command: tuple[Value, ...], env: dict[str, Setting], here: Setting) -> tuple[Value, ...] | None:
    """What `env` starts, its variables put into `env`; None for options that a fleet file cannot say."""
    at = 1
    changed = dict(env)
    while at < len(command):
        word = command[at]
        if not isinstance(word, str):
            return None
        following = command[at + 1] if at + 1 < len(command) else None
        found = _VARIABLE.fullmatch(word)
        if found:
            changed[found[1]] = replace(here, value=found[2])
        elif word == "-u" and isinstance(following, str) and following in changed:
            del changed[following]
            at += 1
        elif word.startswith("-"):
            return None
        else:
            env.clear()
            env.update(changed)
            return command[at:]
        at += 1
    return None
