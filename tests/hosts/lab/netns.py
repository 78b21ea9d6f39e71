"""Entering network namespaces, a thread at a time."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def path(name: str) -> str:
    return f"/run/netns/{name}"


def enter(where: str) -> None:
    """Put the calling thread, and whatever it starts from now on, into a namespace."""
    fd = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {where}")
    finally:
        os.close(fd)


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """The calling thread is in the namespace `name` for the block, then back where it was.

    By setns and not by `ip netns exec`, which remounts /sys and with it hides the cgroups.
    """
    back = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(path(name))
        try:
            yield
        finally:
            enter(f"/proc/self/fd/{back}")
    finally:
        os.close(back)
