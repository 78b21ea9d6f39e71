"""Who notices a fault first, and when: exits, the engines' and the router's own words, clients' errors."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx

from tests.e2e.stack import HTTP, Process

EVERY = 0.1


class Watch:
    """One thread a process looks for the first sign after `mark`. A sign is what an operator could see."""

    def __init__(self, processes: dict[str, Process]) -> None:
        self._processes = processes
        self.signs: list[tuple[float, str]] = []
        self._stop = threading.Event()
        self._before = {n: _facts(p) for n, p in processes.items()}
        self._threads = [
            threading.Thread(target=self._look, args=(n, p), daemon=True) for n, p in processes.items()
        ]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10.0)

    def first(self, since: float, more: list[tuple[float, str]]) -> tuple[float, str] | None:
        """The earliest sign after `since`, of ours and of `more`."""
        return min((s for s in [*self.signs, *more] if s[0] >= since), default=None)

    def _look(self, name: str, process: Process) -> None:
        before, popen = self._before[name], process.popen
        while not self._stop.is_set():
            if popen is not None and popen.poll() is not None:
                self.signs.append((time.monotonic(), f"{name} exited {popen.returncode}"))
                return
            now = _facts(process)
            if now is not None and before is not None:
                self.signs += [(time.monotonic(), f"{name}: {s}") for s in sorted(now - before)]
                before = now
            self._stop.wait(EVERY)


def _facts(process: Process) -> set[str] | None:
    """What is wrong by a process's own account, and its counters of failures; None when it is silent."""
    try:
        return _wrong(dict(HTTP.get(f"{process.url}/v1/state", timeout=2.0).json()))
    except (httpx.HTTPError, ValueError):
        return None


def _wrong(state: dict[str, Any]) -> set[str]:
    counters: dict[str, Any] = state["counters"]
    found = {f"{n} fired" + _nth(v) for n, v in counters.get("deadlines_fired", {}).items()}
    found |= {f"{n} counted" + _nth(v) for n, v in counters.get("requests_failed", {}).items()}
    if counters.get("requests_aborted"):
        found.add("abort counted" + _nth(counters["requests_aborted"]))
    found |= {
        f"{p['instance'] or p['address']} is not linked" for p in state.get("peers", []) if not p["linked"]
    }
    found |= {f"{e['instance']} is not ready" for e in state.get("engines", []) if not e["ready"]}
    return found


def _nth(count: int) -> str:
    return "" if count == 1 else f" ({count})"
