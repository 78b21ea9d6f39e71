"""Processes of a benchmark: each in its own session, logging to a file, ended by its own pid."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType


class BenchError(Exception):
    """A benchmark cannot run; the message says why in one sentence."""


def end_on_sigterm() -> None:
    """From now on SIGTERM leaves every block as Ctrl-C does: servers have sessions of their own, and would
    outlive it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Procs:
    """Starts processes and ends every one of them when the block is left, however it is left."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.patience = 20.0  # seconds between SIGTERM and SIGKILL
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Procs:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, argv: Sequence[str], env: dict[str, str] | None = None) -> int:
        """Start `argv` with `env` added to this process's environment; returns the pid."""
        with open(self.log_dir / f"{name}.log", "wb") as log:
            proc = subprocess.Popen(
                argv,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append((name, proc))
        return proc.pid

    @property
    def pids(self) -> list[int]:
        return [proc.pid for _, proc in self._running]

    def wait(self, what: str, ready: Callable[[], bool], seconds: float) -> float:
        """Poll `ready` until it holds; returns the seconds it took, BenchError when a process ends first."""
        start = time.monotonic()
        while not ready():
            for name, proc in self._running:
                if proc.poll() is not None:
                    raise BenchError(f"{name} ended with {proc.returncode}: {self.tail(name)}")
            if time.monotonic() - start > seconds:
                raise BenchError(f"{what} was not ready within {seconds:g} s.")
            time.sleep(0.1)
        return time.monotonic() - start

    def tail(self, name: str, lines: int = 5) -> str:
        text = (self.log_dir / f"{name}.log").read_text(errors="replace")
        return " | ".join(text.strip().splitlines()[-lines:])

    def stop(self) -> None:
        """SIGTERM in reverse order of the start, then SIGKILL to the group of what is left."""
        for _, proc in reversed(self._running):
            if proc.poll() is None:
                proc.terminate()
        deadline = time.monotonic() + self.patience
        for _, proc in reversed(self._running):
            try:
                proc.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            with contextlib.suppress(ProcessLookupError):
                os.killpg(proc.pid, signal.SIGKILL)
            proc.wait(10)
        self._running.clear()


def http_ok(url: str) -> bool:
    """Whether a GET answers 200 within two seconds."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports that nothing listens on now; all held at once while they are drawn."""
    socks = [socket.socket() for _ in range(count)]
    try:
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]
    finally:
        for sock in socks:
            sock.close()
