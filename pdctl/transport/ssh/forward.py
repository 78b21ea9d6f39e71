"""A socket of this machine that ends at an address as the host reaches it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable

import paramiko

_CHUNK = 1 << 16
# How often a thread that cannot send looks whether anybody still wants it to.
_LOOK = 1.0
# What a channel raises on a lost connection is not always an OSError.
_BROKEN = (OSError, EOFError)


def bridge(channel: paramiko.Channel) -> socket.socket:
    """The near end of a connected pair. Two threads carry bytes until both directions have ended, or until
    the near end is closed, whatever the host still has to say or to take by then."""
    near, far = socket.socketpair()
    channel.settimeout(_LOOK)
    hung_up = select.poll()
    hung_up.register(far, 0)
    using = [far, far]

    def outward() -> None:
        while data := far.recv(_CHUNK):
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[channel.send(rest) :]
                except TimeoutError:
                    if hung_up.poll(0):
                        return
        channel.shutdown_write()
        # The near end may only have said that it is done with sending.
        hung_up.poll()

    def inward() -> None:
        while True:
            try:
                data = channel.recv(_CHUNK)
            except TimeoutError:
                continue
            if not data:
                break
            far.sendall(data)
        if channel.get_transport().is_active():
            far.shutdown(socket.SHUT_WR)
        else:
            _break(channel, far)

    def carry(work: Callable[[], None], last: bool) -> None:
        try:
            work()
        except _BROKEN:
            last = True
        if last:
            _break(channel, far)
        using.pop()
        if not using:
            far.close()

    for work in (outward, inward):
        threading.Thread(target=carry, args=(work, work is outward), daemon=True, name="pdctl-dial").start()
    return near


def _break(channel: paramiko.Channel, far: socket.socket) -> None:
    """One side is gone: wake the thread that waits for the other."""
    with contextlib.suppress(OSError):
        far.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(*_BROKEN):
        channel.close()
