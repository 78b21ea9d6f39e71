"""What every flow is given: the fleet, a way to each host and its units, and somewhere to report progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

import httpx

from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.fleet.tokens import read_token
from pdctl.remote import web
from pdctl.remote.journal import Journal
from pdctl.remote.recording import Executed, RecordingTransport
from pdctl.transport.base import Transport
from pdctl.transport.open import open_transport
from pdctl.units.base import Units
from pdctl.units.choose import open_units

# Progress for a person: `say` is a line that stays, `wait` replaces the last `wait` on a terminal.
Say = Callable[[str], None]


def silent(text: str) -> None:
    """For callers that show nothing."""


@dataclass
class Context:
    """`transport` and `units` are opened once per host; leaving the `with` closes them.

    `journal` is the run that writes down what is executed, while there is one (flows/changing.py);
    `resumes` is the earlier run that this one goes on with.
    """

    fleet: Fleet
    say: Say = silent
    wait: Say = silent
    resumes: str = ""
    journal: Journal | None = None
    _transports: dict[str, RecordingTransport] = field(default_factory=dict)
    _units: dict[str, Units] = field(default_factory=dict)
    _opening: threading.Lock = field(default_factory=threading.Lock)

    def transport(self, host: str) -> Transport:
        return self._recording(host)

    def unrecorded(self, host: str) -> Transport:
        """For what no run lists: the lock and its heartbeat, audit records."""
        return self._recording(host).inner

    def _recording(self, host: str) -> RecordingTransport:
        with self._opening:
            if host not in self._transports:
                opened = open_transport(self.fleet.hosts[host])
                self._transports[host] = RecordingTransport(opened, self._record)
            return self._transports[host]

    def _record(self, done: Executed) -> None:
        if self.journal is not None:
            self.journal.command(done)

    def client(self, timeout: float) -> httpx.Client:
        """For one engine or router after the other; `timeout` seconds bound every single wait."""
        return web.client(self._way, timeout)

    def async_client(
        self, timeout: float = 5.0, connections: int = 256, keep: int | None = None
    ) -> httpx.AsyncClient:
        """For many at once; `keep` as in remote.web."""
        return web.async_client(self._way, timeout, connections, keep)

    def _way(self, address: str) -> Transport | None:
        """Engines of this machine are reached straight, others through their host's connection."""
        for host in self.fleet.hosts.values():
            if host.address == address:
                return None if host.local else self.transport(host.name)
        return None

    def units(self, host: str) -> Units:
        if host not in self._units:
            paths, spec = self.fleet.host_paths(host), self.fleet.hosts[host]
            self._units[host] = open_units(self.transport(host), paths, spec, self.fleet.name)
        return self._units[host]

    def units_of(self, unit: Engine | Router) -> Units:
        return self.units(unit.host)

    def admin_headers(self) -> dict[str, str]:
        """For POST /admin/… of engines and router."""
        return {"Authorization": f"Bearer {read_token(self.fleet)}"}

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport in self._transports.values():
            transport.close()
