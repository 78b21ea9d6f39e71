"""What any unit backend does. Specs lie on the host, so a unit is started and stopped by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pdctl.units.spec import UnitSpec, UnitStatus


@dataclass(frozen=True)
class LogPart:
    """Text of a log, whole lines, and where the next part begins."""

    text: str
    cursor: str


@dataclass(frozen=True)
class Drift:
    """A file of a unit that is not as pdctl writes it, and `what` is wrong with it. `at` is when it was
    changed last, Unix seconds of the host, None for one that is gone. `ours`: an earlier pdctl wrote it so;
    None when that is not known."""

    what: str
    at: float | None = None
    ours: bool | None = None


class Units(Protocol):
    """The units of one host.

    `install` writes the unit's file and starts nothing; `start` returns once the process exists (ready or
    not) and does nothing when it runs already; `stop` returns once nothing of it runs, `at_once` without
    waiting for what it may still want to end; `remove` stops and forgets it. `status()` without names tells
    of every unit installed on the host.

    `specs` has every unit that lies on the host just as `install` would write it, `installed` one of them:
    a unit whose files were changed or lost is absent, and `drift` says what is wrong with them.

    `log_since` without a cursor is the last `lines` of the log, with one what was added behind it.
    """

    kind: str

    def short_lived(self) -> str:
        """Why units would end with the login that starts them; "" when they outlive it."""
        ...

    def outlive(self) -> None:
        """Make units outlive the login; PdctlError says who must allow it."""
        ...

    def install(self, spec: UnitSpec) -> None: ...

    def specs(self, names: Sequence[str] = ()) -> dict[str, UnitSpec]: ...

    def installed(self, name: str) -> UnitSpec | None: ...

    def drift(self, name: str) -> list[Drift]: ...

    def start(self, name: str) -> UnitStatus: ...

    def stop(self, name: str, at_once: bool = False) -> UnitStatus: ...

    def restart(self, name: str) -> UnitStatus: ...

    def remove(self, name: str) -> None: ...

    def status(self, names: Sequence[str] = ()) -> dict[str, UnitStatus]: ...

    def is_active(self, name: str) -> bool: ...

    def logs(self, name: str, lines: int = 100) -> list[str]: ...

    def log_since(self, name: str, cursor: str = "", lines: int = 0) -> LogPart: ...
