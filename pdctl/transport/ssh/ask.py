"""Questions to the person at the terminal, one at a time however many hosts are connected at once."""

from __future__ import annotations

import atexit
import getpass
import sys
import termios
import threading
from functools import partial

_one_at_a_time = threading.Lock()


def possible() -> bool:
    """Whether there is a person: both what we read from and what we ask on are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def begin_line() -> None:
    """A question stands on a line of its own: what is being waited for is shown without an end of line."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def confirm(question: str) -> bool:
    with _one_at_a_time:
        begin_line()
        print(f"{question} [yes/no] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() == "yes"


def passphrase(file: str) -> str:
    """Read without an echo, which comes back also when Ctrl-C ends the process while a thread waits here."""
    fd = sys.stdin.fileno()
    restore = partial(termios.tcsetattr, fd, termios.TCSADRAIN, termios.tcgetattr(fd))
    with _one_at_a_time:
        atexit.register(restore)
        begin_line()
        try:
            return getpass.getpass(f"Passphrase of {file}: ", stream=sys.stderr)
        finally:
            atexit.unregister(restore)
