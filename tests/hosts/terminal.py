"""A process with a terminal and a person at it, who is the test."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from types import TracebackType


class Terminal:
    """`said` is all that has been printed so far."""

    def __init__(self, *argv: str) -> None:
        self._ours, theirs = pty.openpty()
        self._child = subprocess.Popen(
            [sys.executable, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # Also the one that getpass finds as /dev/tty. On a copy: it closes what it was given.
            preexec_fn=lambda: os.login_tty(os.dup(theirs)),
        )
        os.close(theirs)
        self.said = ""

    def answer(self, question: str, answer: str, within: float = 20.0) -> None:
        """Wait until the question is there, and type."""
        end = time.monotonic() + within
        while question not in self.said:
            assert time.monotonic() < end, f"not asked {question!r}: {self.said!r}"
            self._look(0.2)
        os.write(self._ours, f"{answer}\n".encode())

    def press(self, keys: str) -> None:
        """As they are: with Ctrl-C the terminal interrupts every process of its foreground group."""
        os.write(self._ours, keys.encode())

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._child.poll()

    @property
    def echoes(self) -> bool:
        """Whether what is typed is shown."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def end(self, within: float = 20.0) -> list[str]:
        """The lines it printed, once it has ended."""
        end = time.monotonic() + within
        while self._look(0.2):
            assert time.monotonic() < end, f"still running: {self.said!r}"
        self._child.wait(10)
        return self.said.replace("\r", "").splitlines()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait(10)
        os.close(self._ours)

    def _look(self, wait: float) -> bool:
        """False at the end: Linux says EIO when nobody has the other side open."""
        if not select.select([self._ours], [], [], wait)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.said += data.decode("utf-8", "replace")
        return bool(data)
