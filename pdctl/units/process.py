"""The `process` backend: pdctl's own keeper instead of systemd, with the same meaning."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from pdctl.errors import PdctlError
from pdctl.fleet.model import HostPaths
from pdctl.transport.base import Transport, checked
from pdctl.transport.command import Command
from pdctl.units.base import Drift, LogPart
from pdctl.units.spec import UnitSpec, UnitStatus

QUICK = 30.0
# Prints where in the log it begins, and from there on; a log that is shorter by now was rotated.
_SINCE = """size=$(stat -c %s "$1") || exit
[ "$size" -ge "$2" ] || set -- "$1" 0
echo "$2"; exec tail -c +$(($2 + 1)) "$1"
"""
# Prints how long the log is, and the last lines of that.
_LAST = """size=$(stat -c %s "$1") || exit
echo "$size"; head -c "$size" "$1" | tail -n "$2"
"""


class ProcessUnits:
    kind = "process"

    def __init__(self, transport: Transport, paths: HostPaths) -> None:
        self._transport = transport
        self._paths = paths

    def install(self, spec: UnitSpec) -> None:
        self._transport.put(spec.to_json().encode(), self._paths.unit(spec.name), 0o600)

    def installed(self, name: str) -> UnitSpec | None:
        try:
            text = self._transport.get(self._paths.unit(name)).decode()
            return UnitSpec.from_json(text)
        except PdctlError as error:
            if error.code == "no_file":
                return None
            raise
        except ValueError:
            # Damaged or of another version: as good as absent, the next deploy writes it anew.
            return None

    def specs(self, names: Sequence[str] = ()) -> dict[str, UnitSpec]:
        found = {name: self.installed(name) for name in names or self.status()}
        return {name: spec for name, spec in found.items() if spec is not None}

    def drift(self, name: str) -> list[Drift]:
        """Nothing: the spec is the unit's only file, and the keeper reads it at every start."""
        return []

    def start(self, name: str) -> UnitStatus:
        return self._ctl("start", [name], QUICK)[name]

    def stop(self, name: str, at_once: bool = False) -> UnitStatus:
        spec = self.installed(name)
        timeout = spec.stop_timeout if spec else 0.0
        return self._ctl("end" if at_once else "stop", [name], timeout + QUICK + 15.0)[name]

    def restart(self, name: str) -> UnitStatus:
        self.stop(name)
        return self.start(name)

    def remove(self, name: str) -> None:
        self.stop(name)
        run = self._paths.run(name)
        files = [self._paths.unit(name), self._paths.env(name), run, run.removesuffix(".json") + ".lock"]
        checked(self._transport, Command(("rm", "-f", *files)), QUICK, f"removing {name}")

    def status(self, names: Sequence[str] = ()) -> dict[str, UnitStatus]:
        return self._ctl("status", names, QUICK)

    def is_active(self, name: str) -> bool:
        return self.status([name])[name].state == "active"

    def logs(self, name: str, lines: int = 100) -> list[str]:
        command = Command(("tail", "-n", str(lines), self._paths.log(name)))
        result = self._transport.run(command, QUICK)
        return result.text.splitlines() if result.rc == 0 else []

    def log_since(self, name: str, cursor: str = "", lines: int = 0) -> LogPart:
        path = self._paths.log(name)
        script = (
            ("sh", "-c", _SINCE, "sh", path, cursor)
            if cursor
            else ("sh", "-c", _LAST, "sh", path, str(lines))
        )
        result = self._transport.run(Command(script), QUICK)
        if result.rc != 0:
            return LogPart("", cursor or "0")
        place, _, said = result.stdout.partition(b"\n")
        whole, newline, torn = said.rpartition(b"\n")
        end = int(place) + len(whole + newline) if cursor else int(place) - len(torn)
        return LogPart((whole + newline).decode("utf-8", "replace"), str(end))

    def short_lived(self) -> str:
        return ""

    def outlive(self) -> None:
        """Keepers are sessions of their own."""

    def _ctl(self, verb: str, names: Sequence[str], deadline: float) -> dict[str, UnitStatus]:
        folder = f"{self._paths.root}/units"
        command = Command((sys.executable, "-m", "pdctl.units.ctl", verb, folder, *names))
        result = checked(self._transport, command, deadline, f"{verb} of {', '.join(names) or 'all units'}")
        return {name: UnitStatus(**data) for name, data in json.loads(result.text).items()}
