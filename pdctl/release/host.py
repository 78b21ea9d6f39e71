"""Releases on one host: what is there, install, activate, prune."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdctl.fleet.model import HostPaths
from pdctl.release import hosttool
from pdctl.release.build import Release, Runtime, check_runtime, needed_dists
from pdctl.transport.base import Transport, checked
from pdctl.transport.command import Command

QUICK = 60.0
INSTALL = 300.0


class HostReleases:
    """`python` is the interpreter of the engines on that host."""

    def __init__(self, transport: Transport, paths: HostPaths, python: str) -> None:
        self._transport = transport
        self._paths = paths
        self._python = python
        self._listing: dict[str, Any] | None = None

    def runtime(self) -> Runtime:
        always, sometimes = needed_dists()
        probe = self._tool("probe", *always, *sometimes, what=f"asking {self._python}")
        if "/" in self._python:
            # What the operator named is what engines are started with, a wrapper included.
            probe["python"] = self._python
        return check_runtime(probe, self._transport.host)

    def state(self) -> tuple[list[str], str | None]:
        """Installed ids, oldest first, and the current one; asked once, then kept up by what is done here."""
        if self._listing is None:
            self._listing = self._tool("list", self._paths.root, what="listing releases")
        return self._listing["releases"], self._listing["current"]

    def install(self, release: Release) -> None:
        archive = f"{self._paths.root}/incoming-{release.id}.tar"
        self._transport.put(release.archive(), archive, 0o600, INSTALL)
        self._listing = self._tool(
            "install", self._paths.root, release.id, archive, what="installing a release"
        )

    def activate(self, release: str) -> None:
        self._listing = self._tool("activate", self._paths.root, release, what="switching the release")

    def prune(self, keep: int, used: Sequence[str]) -> None:
        self._listing = self._tool("prune", self._paths.root, str(keep), *used, what="removing old releases")

    def _tool(self, *argv: str, what: str) -> dict[str, Any]:
        source = Path(hosttool.__file__).read_bytes()
        command = Command((self._python, "-", *argv), stdin=source)
        result = checked(self._transport, command, INSTALL if argv[0] == "install" else QUICK, what)
        found: dict[str, Any] = json.loads(result.text)
        return found
