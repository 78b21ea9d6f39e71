"""The variables of a script at one point of it, as far as its text tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from pdctl.adopt.notes import Unknown, Value
from pdctl.adopt.service import Setting
from pdctl.adopt.tables import names


class Absent(Enum):
    """UNSET is known not to be set; OUTSIDE is whatever the script's environment holds."""

    UNSET = "unset"
    OUTSIDE = "outside"


# A variable's value, an array's values; and what a name may turn out to be.
Held = Value | tuple[Value, ...]
Found = Held | Absent


@dataclass(frozen=True)
class Var:
    """`value` is a list for an array, None for a name that is exported and not set."""

    value: Held | None
    exported: bool
    file: str
    line: int


@dataclass(frozen=True)
class World:
    """What is known of a script's surroundings.

    `answers` are values given by the operator for names, positions or whole substitutions; `unset` are names
    said not to be set. `env` is the environment it is started with and `complete` whether that, with the
    `ambient` names that are set by whoever starts it, is all of it. `args` are its arguments, None when they
    are not known. `script` is its own path.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    env: Mapping[str, Setting] = field(default_factory=dict)
    complete: bool = False
    ambient: frozenset[str] = frozenset()
    script: str | None = None
    args: tuple[str, ...] | None = None
    cwd: str | None = None


Kept = tuple[dict[str, Var], set[str], set[str], Value | None]


class State:
    def __init__(self, world: World) -> None:
        self.world = world
        self.vars: dict[str, Var] = {n: Var(s.value, True, s.file, s.line) for n, s in world.env.items()}
        self.options: set[str] = set()
        self.cwd: Value | None = world.answers.get("PWD", world.cwd)
        self.read: set[str] = set()
        # Exported before it was known whether they are set.
        self.marked: set[str] = set()
        # Read-only from here on.
        self.fixed: set[str] = set()

    def copy(self) -> Kept:
        return dict(self.vars), set(self.options), set(self.marked), self.cwd

    def restore(self, kept: Kept) -> None:
        self.vars, self.options, self.marked, self.cwd = kept

    def lookup(self, name: str) -> Found:
        """What `name` holds; reading it from outside makes it a variable, exported as it came."""
        self.read.add(name)
        if name in self.vars:
            value = self.vars[name].value
            return Absent.UNSET if value is None else value
        if name in self.world.answers:
            self.vars[name] = Var(self.world.answers[name], True, "--set", 0)
            return self.world.answers[name]
        if name == "PWD" and self.cwd is not None:
            return self.cwd
        outside = names("bash", "dynamic") | self.world.ambient
        if name in self.world.unset or (self.world.complete and name not in outside):
            return Absent.UNSET
        return Absent.OUTSIDE

    def assign(self, name: str, value: Held, file: str, line: int, export: bool = False) -> None:
        """A value that is not known is replaced by the operator's answer for that name."""
        if isinstance(value, Unknown):
            value = self.world.answers.get(name, replace(value, answer=f"--set {name}=VALUE"))
        before = self.vars.get(name)
        if before is not None and isinstance(before.value, tuple) and not isinstance(value, tuple):
            value = (value, *before.value[1:])  # an array stays one
        self.vars[name] = Var(value, export or self.passes(name), file, line)

    def passes(self, name: str) -> bool:
        """Whether a value that `name` gets now is exported without a word."""
        before = self.vars.get(name)
        if before is not None and before.exported:
            return True
        inherited = before is None and name in names("bash", "inherited")
        return inherited or name in self.marked or "a" in self.options

    def export(self, name: str, exported: bool, file: str, line: int) -> None:
        """What comes from outside is passed on anyway; a value that it gets later is too."""
        (self.marked.add if exported else self.marked.discard)(name)
        if self.lookup(name) is Absent.UNSET:
            self.vars[name] = Var(None, exported, file, line)
        elif name in self.vars:
            self.vars[name] = replace(self.vars[name], exported=exported)

    def unset(self, name: str, file: str, line: int) -> None:
        self.marked.discard(name)
        self.vars[name] = Var(None, False, file, line)

    def exported(self) -> dict[str, Setting]:
        """What a command started now would inherit of what is known."""
        return {
            n: Setting(v.value, v.file, v.line)
            for n, v in self.vars.items()
            if v.exported and v.value is not None and not isinstance(v.value, tuple)
        }
