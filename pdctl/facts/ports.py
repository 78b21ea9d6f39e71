"""Whether a TCP port is free to bind on this host, and who holds it when it is not."""

from __future__ import annotations

import socket

import psutil


def free(host: str, port: int) -> bool:
    """True when a listener could bind `host:port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def holder(port: int) -> int | None:
    """The pid that listens on `port`, None when nobody does or it is not ours to see."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
            pid: int | None = connection.pid
            return pid
    return None
