"""sd_notify: one datagram to the service manager, nothing when there is none."""

from __future__ import annotations

import os
import socket


def notify(message: str) -> None:
    """Send e.g. "READY=1" to $NOTIFY_SOCKET. A lost message never hurts the service: errors are dropped."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.2)
            sock.connect(address)
            sock.send(message.encode())
    except OSError:
        return
