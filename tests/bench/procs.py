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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType

TELL_EVERY = 30.0  # seconds between two words of progress


class BenchError(Exception):
    """A benchmark cannot run; the message says why in one sentence."""


class OutOfTime(BenchError):
    """A part of the run did not end within its limit."""


def say(text: str) -> None:
    """Progress, on stderr: stdout is for results."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """OutOfTime in the main thread, wherever it waits, once the block has taken `seconds`.

    The waits inside have deadlines of their own; this bounds their sum.
    """

    def late(_: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"{what} did not end within {seconds:g} s; it was in {_where(frame)}.")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _where(frame: FrameType | None) -> str:
    """The innermost function of the benchmark's own that a frame is in, with its file and line."""
    here = str(Path(__file__).parent)
    while frame is not None and (
        not frame.f_code.co_filename.startswith(here) or frame.f_code.co_name.startswith("<")
    ):
        frame = frame.f_back
    if frame is None:
        return "no code of its own"
    return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


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
        start = told = time.monotonic()
        while not ready():
            if time.monotonic() - told > TELL_EVERY:
                told = time.monotonic()
                say(f"  waiting for {what}: {told - start:.0f} of at most {seconds:g} s")
            for name, proc in self._running:
                if proc.poll() is not None:
                    raise BenchError(f"{name} ended with {proc.returncode}: {self.tail(name)}")
            if time.monotonic() - start > seconds:
                last = "; ".join(f"{name} said last: {self.tail(name, 1)[:200]}" for name, _ in self._running)
                raise BenchError(f"{what} was not ready within {seconds:g} s. {last}")
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
