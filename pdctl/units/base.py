"""What any unit backend does. Specs lie on the host, so a unit is started and stopped by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pdctl.units.spec import UnitSpec, UnitStatus


class Units(Protocol):
    """The units of one host.

    `install` writes the unit's file and starts nothing; `start` returns once the process exists (ready or
    not) and does nothing when it runs already; `stop` returns once nothing of it runs; `remove` stops and
    forgets it. `status()` without names tells of every unit installed on the host.
    """

    kind: str

    def install(self, spec: UnitSpec) -> None: ...

    def installed(self, name: str) -> UnitSpec | None: ...

    def start(self, name: str) -> UnitStatus: ...

    def stop(self, name: str) -> UnitStatus: ...

    def restart(self, name: str) -> UnitStatus: ...

    def remove(self, name: str) -> None: ...

    def status(self, names: Sequence[str] = ()) -> dict[str, UnitStatus]: ...

    def is_active(self, name: str) -> bool: ...

    def logs(self, name: str, lines: int = 100) -> list[str]: ...
