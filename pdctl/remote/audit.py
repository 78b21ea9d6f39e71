"""The audit record of each host: who changed what there. Append-only, on the host itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from pdctl.errors import PdctlError
from pdctl.fleet.model import Host
from pdctl.remote import audit_tool
from pdctl.remote.fanout import begin
from pdctl.remote.tool import QUICK, call_tool
from pdctl.transport.base import Transport

Line = Mapping[str, str]


class Audit:
    """`who` are the keys that every line of this run has: by, from, run, verb. Lines hold no secrets.

    Written beside the run, so that a round trip more does not lengthen what is out of service; `close`
    waits for what is left. A line that cannot be written is said, because it must not hide how the step
    itself ended; a host that failed once is not asked again.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        transport: Callable[[str], Transport],
        who: Line,
        say: Callable[[str], None],
    ) -> None:
        self._hosts, self._transport, self._who, self._say = hosts, transport, who, say
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Line]] = {}
        self._writing: dict[str, Future[None]] = {}
        self._failed: set[str] = set()

    def write(self, host: str, step: str, what: str, result: str) -> None:
        """One line on `host`; a name that is no host's has no record."""
        if host not in self._hosts:
            return
        line = {**self._who, "step": step, "what": what, "result": result}
        with self._lock:
            self._waiting.setdefault(host, []).append(line)
            if host not in self._writing:
                self._writing[host] = begin(partial(self._drain, host))

    def close(self) -> None:
        """Wait until everything is written, or known not to be."""
        with self._lock:
            writing = dict(self._writing)
        left = wait(writing.values(), QUICK).not_done
        for host, future in writing.items():
            if future in left:
                self._say(f"the audit record on {host} is still being written and may lack this run's end")

    def _drain(self, host: str) -> None:
        while True:
            with self._lock:
                lines = self._waiting.pop(host, [])
                if not lines:
                    del self._writing[host]
                    return
            if host in self._failed:
                continue
            try:
                append(self._transport(host), self._hosts[host], lines)
            except PdctlError as error:
                self._failed.add(host)
                self._say(f"the audit record on {host} is not written: {error.message}")


def append(transport: Transport, host: Host, lines: Sequence[Line]) -> None:
    ask = {"root": host.root, "lines": [dict(line) for line in lines]}
    call_tool(transport, host.tool_python, audit_tool, "append", ask, "writing the audit record")


def read_audit(transport: Transport, host: Host, last: int) -> tuple[list[dict[str, Any]], int]:
    """The last lines, oldest first, and how many could not be read."""
    ask = {"root": host.root, "last": last}
    found = call_tool(transport, host.tool_python, audit_tool, "read", ask, "reading the audit record")
    return list(found["lines"]), int(found["bad"])
