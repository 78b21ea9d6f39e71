"""The `systemd` backend: units of the host's systemd, or of the login user's own."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pdctl.errors import DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import HostPaths
from pdctl.transport.base import Transport
from pdctl.transport.command import Command
from pdctl.transport.joined import joined
from pdctl.units import systemfiles, systemhost, systemtool
from pdctl.units.base import Drift, LogPart
from pdctl.units.spec import UnitSpec, UnitStatus
from pdctl.units.systemd_render import render
from pdctl.units.systemd_status import parse

# One call of the tool, which gives itself WAIT.
CALL = systemtool.WAIT + 40.0
# What systemd itself needs on top of a unit's stop timeout: SIGKILL and the end of everything.
MARGIN = 30.0


class SystemdUnits:
    """`scope` system needs root on the host, user only a login that may linger.

    A start enables the unit, a stop disables it: what comes back with the host is what pdctl started last.
    `systemctl stop` by hand leaves it enabled.
    """

    kind = "systemd"

    def __init__(self, transport: Transport, paths: HostPaths, python: str, fleet: str, scope: str) -> None:
        self._transport = transport
        self._paths = paths
        self._python = python
        self._fleet = fleet
        self._scope = scope
        self._lasts: bool | None = None

    def short_lived(self) -> str:
        """Of what `specs` saw last, so that a look at a host costs no further round trip."""
        if self._lasts is None:
            self.specs()
        return "" if self._lasts else "the login does not linger"

    def outlive(self) -> None:
        self._tool("linger", "letting units outlive the login")
        self._lasts = True

    def install(self, spec: UnitSpec) -> None:
        files = render(spec, self._scope, self._paths.root)
        self._tool("install", f"installing {spec.name}", name=spec.name, spec=spec.to_json(), files=files)

    def specs(self, names: Sequence[str] = ()) -> dict[str, UnitSpec]:
        answer = self._tool("files", "reading units", names=list(names))
        self._lasts = answer["lasts"]
        found = {}
        for name, there in answer["units"].items():
            spec = _spec(there["spec"])
            if spec is not None and not self._drift(spec, there, answer["login"]):
                found[name] = spec
        return found

    def installed(self, name: str) -> UnitSpec | None:
        return self.specs([name]).get(name)

    def drift(self, name: str) -> list[Drift]:
        answer = self._tool("files", f"reading {name}", names=[name])
        there = answer["units"][name]
        spec = _spec(there["spec"])
        return self._drift(spec, there, answer["login"]) if spec is not None else []

    def _drift(self, spec: UnitSpec, there: dict[str, Any], login: str) -> list[Drift]:
        wanted = render(spec, self._scope, self._paths.root)
        lines = []
        for name, text in wanted.items():
            found = there["files"].get(name)
            if found is None:
                lines.append(Drift(f"{name} is not there"))
            elif found != text.replace(systemhost.LOGIN, login):
                lines.append(
                    Drift(f"{name} is not as pdctl writes it", there["times"][name], there["ours"][name])
                )
        for name in there["foreign"]:
            lines.append(Drift(f"{name} is not pdctl's; it will be set aside", there["times"][name], False))
        return lines

    def start(self, name: str) -> UnitStatus:
        return self._move("start", name)

    def stop(self, name: str, at_once: bool = False) -> UnitStatus:
        return self._move("stop", name, at_once)

    def restart(self, name: str) -> UnitStatus:
        return self._move("restart", name)

    def _move(self, verb: str, name: str, at_once: bool = False) -> UnitStatus:
        """Ask until the unit is no longer on its way down, which takes a drain."""
        began, again = time.monotonic(), False
        while True:
            answer = self._tool(verb, f"{verb} of {name}", name=name, again=again, at_once=at_once)
            raw = answer["units"][name]
            status = parse(name, raw, answer)
            if status.state != "deactivating":
                return status
            if time.monotonic() - began > raw["stop_timeout"] + MARGIN:
                message = f"{name} on {self._transport.host} does not end (pid {status.pid})."
                raise DeadlineError("not_stopped", message)
            verb, again = ("stop" if verb == "stop" else "start"), True

    def remove(self, name: str) -> None:
        self.stop(name)
        self._tool("remove", f"removing {name}", name=name)

    def status(self, names: Sequence[str] = ()) -> dict[str, UnitStatus]:
        answer = self._tool("status", f"asking for {', '.join(names) or 'all units'}", names=list(names))
        return {name: parse(name, raw, answer) for name, raw in answer["units"].items()}

    def is_active(self, name: str) -> bool:
        return self.status([name])[name].state == "active"

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """A journal that cannot be read says so as its only line: failures are explained with these."""
        try:
            return self.log_since(name, lines=lines).text.splitlines()
        except PdctlError as error:
            if error.code != "systemd_failed":
                raise
            return [error.message]

    def log_since(self, name: str, cursor: str = "", lines: int = 0) -> LogPart:
        answer = self._tool("logs", f"reading the log of {name}", name=name, cursor=cursor, lines=lines)
        return LogPart(answer["text"], answer["cursor"])

    def _tool(self, verb: str, what: str, **ask: Any) -> dict[str, Any]:
        """One round trip; PdctlError with the tool's own sentence."""
        about = {"root": self._paths.root, "fleet": self._fleet, "scope": self._scope}
        argv = (self._python, "-", verb, json.dumps({**about, **ask}))
        command = Command(argv, stdin=program(), root=self._scope == "system")
        result = self._transport.run(command, CALL)
        where = f"{what} on {self._transport.host}"
        if result.timed_out:
            hint = "See `systemctl list-jobs` and the load there; what was asked for may still happen."
            raise DeadlineError("systemd_silent", f"{where} did not end in {CALL:g} s.", hint)
        if result.rc != 0:
            said = result.tail(1)
            message = f"{where} failed: {said[0].rstrip('.') if said else f'exit code {result.rc}'}."
            raise PdctlError("systemd_failed", message, exit=Exit.PARTIAL, details=result.tail()[:-1])
        found: dict[str, Any] = json.loads(result.text)
        return found


def _spec(text: str | None) -> UnitSpec | None:
    """None for what is damaged or of another version: as good as absent, the next deploy writes it anew."""
    try:
        return UnitSpec.from_json(text) if text else None
    except (ValueError, TypeError, KeyError):
        return None


@cache
def program() -> bytes:
    """The host tool's modules as one program; what they import of one another is simply there in it."""
    modules = (systemhost, systemfiles, systemtool)
    return joined(Path(str(module.__file__)).read_text(encoding="utf-8") for module in modules)
