"""A terminal that a test can close while something runs in it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios


class Terminal:
    """A pty whose slave is the controlling terminal of what runs in it, as in an SSH session."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()

    def run(self, *argv: str, ignoring: int | None = None) -> subprocess.Popen[bytes]:
        def begin() -> None:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            if ignoring is not None:
                signal.signal(ignoring, signal.SIG_IGN)

        streams = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave}
        return subprocess.Popen([sys.executable, *argv], preexec_fn=begin, **streams)

    def close(self) -> None:
        """The window is closed: the kernel hangs up whoever has the other side."""
        for fd in (self.slave, self.master):
            if fd >= 0:
                os.close(fd)
        self.slave = self.master = -1
