"""Releases on one host: what is there; made, switched, removed. Each call is one round trip."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pdctl.errors import DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.model import Host
from pdctl.release import hosttool, hostvenv
from pdctl.release.build import Release, pack
from pdctl.release.lock import Lock
from pdctl.release.runtime import Facts, Runtime, needed_dists
from pdctl.release.wheels import Wheel
from pdctl.remote.tool import make_root
from pdctl.transport.base import Transport
from pdctl.transport.command import Command

QUICK = 60.0
# Loading everything that engines need, from a cold disk.
PREFLIGHT = 120.0
VENV = 1800.0
# Seconds for any transfer, and the slowest link that is worth waiting for, bytes a second.
SEND, SLOWEST = 60.0, 1 << 20
_REFUSED = 3


@dataclass(frozen=True)
class Installed:
    """`releases` are whole, oldest first; `wheels` are digests."""

    releases: tuple[str, ...]
    current: str | None
    trees: frozenset[str]
    venvs: frozenset[str]
    wheels: frozenset[str]


@dataclass(frozen=True)
class Look:
    """A host at one moment. `env` and `units` are texts by unit, `private` digests by file name; `changed`
    says of each env and unit file when it was changed last, Unix seconds.

    `newest` is the last deployment recorded there, `manifest` the current release's; `root` is there,
    writable, denied or foreign, as hosttool says it; `supervised`: a supervisor was once installed there.
    """

    installed: Installed
    env: dict[str, str]
    private: dict[str, str]
    units: dict[str, str]
    newest: dict[str, Any] | None
    manifest: dict[str, Any]
    changed: dict[str, dict[str, float]]
    root: str
    supervised: bool
    facts: Facts


class HostReleases:
    def __init__(self, transport: Transport, host: Host) -> None:
        self._transport = transport
        self._host = host

    @property
    def root(self) -> str:
        return self._host.root

    def look(self) -> Look:
        always, sometimes = needed_dists()
        ask = {"dists": [*always, *sometimes]}
        found = self._tool(hosttool, "look", ask, QUICK, f"looking at releases with {self._host.tool_python}")
        return Look(
            _installed(found),
            found["env"],
            found["private"],
            found["units"],
            found["newest"],
            found["manifest"] or {},
            found["changed"],
            found["root"],
            found["supervised"],
            Facts(**found["python"]),
        )

    def make_root(self) -> None:
        """Made as root and given to the login user."""
        make_root(self._transport, self._host.root)

    def send(self, wheels: Sequence[Wheel], there: frozenset[str]) -> frozenset[str]:
        """Those wheels that the host lacks; their digests."""
        lacking = [w for w in wheels if w.sha256 not in there]
        for wheel in lacking:
            path = f"{self._host.root}/wheels/{wheel.sha256}/{wheel.name}"
            self._transport.put(wheel.path.read_bytes(), path, 0o644, SEND + wheel.size / SLOWEST)
        return frozenset(w.sha256 for w in lacking)

    def make_venv(self, runtime: Runtime, lock: Lock, wheels: Sequence[Wheel], pip: Wheel | None) -> None:
        ask = {
            "id": runtime.venv,
            "lock": lock.text,
            "index": runtime.kind == "index",
            "wheels": [[w.sha256, w.name] for w in wheels],
            "pip": [pip.sha256, pip.name] if pip else None,
            "seconds": VENV - QUICK,
        }
        self._tool(hostvenv, "venv", ask, VENV, "making the engines' Python environment")

    def install(self, release: Release, base: Mapping[str, Any]) -> Installed:
        """Tree, preflight, and the release's name. `base` is the manifest of a release that is there."""
        ask = {
            "manifest": release.manifest,
            "python": release.interpreter(self._host.root),
            "base": base.get("tree", ""),
            "files": pack(release.changed(base.get("files", {}))),
            "seconds": PREFLIGHT,
        }
        what = f"installing release {release.id}"
        found = self._tool(hosttool, "install", ask, PREFLIGHT + QUICK, what)
        if "differs" in found:
            # Somebody changed a file of the tree there: send all of it.
            whole = {**ask, "base": "", "files": pack(release.files)}
            found = self._tool(hosttool, "install", whole, PREFLIGHT + QUICK, what)
        return _installed(found)

    def activate(self, release: str) -> Installed:
        return _installed(
            self._tool(hosttool, "activate", {"release": release}, QUICK, "switching the release")
        )

    def prune(self, oldest: tuple[int, str]) -> Installed:
        """Keep what deployments from that one on (serial, id) are made of."""
        ask = {"oldest": oldest}
        return _installed(self._tool(hosttool, "prune", ask, QUICK, "removing old releases"))

    def records(self) -> list[dict[str, Any]]:
        """Every deployment recorded on this host, oldest first."""
        found: list[dict[str, Any]] = self._tool(hosttool, "records", {}, QUICK, "reading deployments")[
            "records"
        ]
        return found

    def _tool(
        self, tool: ModuleType, verb: str, ask: Mapping[str, Any], deadline: float, what: str
    ) -> dict[str, Any]:
        question = json.dumps({"root": self._host.root, **ask})
        source = Path(str(tool.__file__)).read_text(encoding="utf-8")
        call = f"\n\nmain({verb!r}, {question!r})\n"
        command = Command((self._host.tool_python, "-", verb), stdin=(source + call).encode())
        result = self._transport.run(command, deadline)
        where = f"{what} on {self._host.name}"
        where = where[0].upper() + where[1:]
        if result.timed_out:
            raise DeadlineError("tool_silent", f"{where} did not end in {deadline:g} s.")
        said = result.tail(20)
        if result.rc == _REFUSED:
            message = f"{where} failed: {said[0]}."
            raise PdctlError("host_refused", message, exit=Exit.FINDINGS, details=said[1:])
        if result.rc != 0:
            message = f"{where} failed: {said[-1] if said else f'exit code {result.rc}'}."
            hint = f"hosts.{self._host.name}.python names the Python that pdctl uses there; 3.9 or newer."
            raise PdctlError("tool_failed", message, hint, exit=Exit.PARTIAL, details=said[:-1])
        found: dict[str, Any] = json.loads(result.text)
        return found


def _installed(found: Mapping[str, Any]) -> Installed:
    return Installed(
        tuple(found["releases"]),
        found["current"],
        frozenset(found["trees"]),
        frozenset(found["venvs"]),
        frozenset(found["wheels"]),
    )
