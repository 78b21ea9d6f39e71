"""sd_notify, both ends: a datagram socket in a folder that only this user can enter, and a word to one."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

PREFIX = "pdctl-notify-"


class NotifySocket:
    """Not in the unit's own folder: a socket's path may not be longer than 107 bytes."""

    def __init__(self) -> None:
        base = os.environ.get("XDG_RUNTIME_DIR")
        usable = base if base and os.access(base, os.W_OK) and len(base) < 60 else None
        self.folder = tempfile.mkdtemp(prefix=PREFIX, dir=usable)
        self.path = str(Path(self.folder) / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def read(self) -> list[tuple[str, str]]:
        """All assignments that have arrived, in order."""
        found: list[tuple[str, str]] = []
        while True:
            try:
                data = self.socket.recv(8192)
            except BlockingIOError:
                return found
            for line in data.decode("utf-8", "replace").splitlines():
                key, _, value = line.partition("=")
                found.append((key, value))

    def close(self) -> None:
        self.socket.close()
        remove_socket(self.folder)


def remove_socket(folder: str) -> None:
    """Also for a keeper that was killed; anything but such a folder is left alone."""
    if Path(folder).name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def tell(message: str) -> None:
    """Send e.g. "READY=1" to whoever supervises this process; nothing where nobody does.

    A lost message never hurts the sender: errors are dropped.
    """
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.2)
            sock.connect("\0" + path[1:] if path.startswith("@") else path)
            sock.send(message.encode())
    except OSError:
        return
