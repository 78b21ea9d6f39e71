"""A command as a value. Quoting and masking happen here and nowhere else."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

MASK = "***"


@dataclass(frozen=True)
class Secret:
    """Text that only a transport may see."""

    value: str

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    __str__ = __repr__


Part = str | Secret


@dataclass(frozen=True)
class Command:
    """`env` is added to the host's own environment; `stdin` is never logged.

    `root`: run as root, through sudo where the login is another user's.
    """

    argv: tuple[Part, ...]
    env: Mapping[str, Part] = field(default_factory=dict)
    cwd: str | None = None
    stdin: bytes = field(default=b"", repr=False)
    root: bool = False

    def raw(self) -> list[str]:
        """argv for execution."""
        return [_raw(p) for p in self.argv]

    def raw_env(self) -> dict[str, str]:
        return {k: _raw(v) for k, v in self.env.items()}

    def shell(self) -> str:
        """One line for a remote shell, secrets included: for a transport's hands only."""
        return _line(self.raw_env(), self.raw(), self.cwd)

    def masked(self) -> str:
        """One line for logs, plans and errors."""
        env = {k: _masked(v) for k, v in self.env.items()}
        return _line(env, [_masked(p) for p in self.argv], self.cwd)


@dataclass(frozen=True)
class Result:
    """`rc` is negative for a signal; `seconds` is wall time on our side."""

    rc: int
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    def tail(self, lines: int = 20) -> list[str]:
        """The last lines it said, stderr first choice."""
        said = (self.stderr or self.stdout).decode("utf-8", "replace")
        return said.splitlines()[-lines:]


def _raw(part: Part) -> str:
    return part.value if isinstance(part, Secret) else part


def _masked(part: Part) -> str:
    return MASK if isinstance(part, Secret) else part


def _line(env: Mapping[str, str], argv: list[str], cwd: str | None) -> str:
    words = [f"{k}={shlex.quote(v)}" for k, v in env.items()]
    line = " ".join((["env", *words] if words else []) + [shlex.quote(a) for a in argv])
    return f"cd {shlex.quote(cwd)} && {line}" if cwd else line
