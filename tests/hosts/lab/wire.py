"""Delay in user space, for kernels without sch_netem.

The host's end of its cable leaves the bridge for a bridge of its own; two taps carry the frames between the
two bridges through this process, which holds each frame for as long as the file wire-HOST.json says.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import random
import select
import socket
import struct
import time
from pathlib import Path

from tests.hosts.lab import netns
from tests.hosts.lab.names import Names
from tests.hosts.lab.shell import sh

_TUNSETIFF, _TAP_NO_PI = 0x400454CA, 0x1002
_LOOK_AGAIN = 0.2
_FRAMES_AT_ONCE = 64


class Rules:
    """Milliseconds and jitter for each peer's address, or `any`; read anew when the file changes."""

    def __init__(self, file: Path) -> None:
        self._file, self._stamp, self._checked = file, 0, 0.0
        self._rules: dict[str, list[float]] = {}

    def refresh(self, now: float) -> None:
        if now - self._checked < _LOOK_AGAIN:
            return
        self._checked = now
        with contextlib.suppress(FileNotFoundError, ValueError):
            stamp = self._file.stat().st_mtime_ns
            if stamp != self._stamp:
                self._rules, self._stamp = json.loads(self._file.read_text()), stamp

    def seconds(self, frame: bytes, outward: bool) -> float:
        if frame[12:14] != b"\x08\x00":
            return 0.0
        peer = socket.inet_ntoa(frame[30:34] if outward else frame[26:30])
        delay, jitter = self._rules.get(peer) or self._rules.get("any") or (0.0, 0.0)
        return (delay + random.uniform(-jitter, jitter)) / 1000


def carry(names: Names, ready: Path, host: str) -> None:
    netns.enter(netns.path(names.switch))
    inner, outer = _tap(f"wa-{host}"), _tap(f"wc-{host}")
    _bridge(host)
    rules = Rules(names.dir / f"wire-{host}.json")
    poll = select.epoll()
    poll.register(inner, select.EPOLLIN)
    poll.register(outer, select.EPOLLIN)
    held: list[tuple[float, int, int, bytes]] = []
    last = {inner: 0.0, outer: 0.0}
    count = 0
    ready.write_text(str(os.getpid()))
    while True:
        now = time.monotonic()
        rules.refresh(now)
        wait = min(_LOOK_AGAIN, held[0][0] - now) if held else _LOOK_AGAIN
        for source, _ in poll.poll(max(0.0, wait)):
            for frame in _frames(source):
                # In order, as on a cable.
                last[source] = max(time.monotonic() + rules.seconds(frame, source == inner), last[source])
                count += 1
                heapq.heappush(held, (last[source], count, outer if source == inner else inner, frame))
        while held and held[0][0] <= time.monotonic():
            _, _, out, frame = heapq.heappop(held)
            with contextlib.suppress(OSError):
                os.write(out, frame)


def _tap(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_NO_PI))
    return fd


def _bridge(host: str) -> None:
    sh("ip", "link", "del", f"wb-{host}", check=False)
    commands = f"""link add wb-{host} type bridge forward_delay 0 stp_state 0
link set wb-{host} up
link set wa-{host} master wb-{host} up
link set wc-{host} master br0 up
link set {host} master wb-{host}
"""
    sh("ip", "-batch", "-", input=commands)


def _frames(source: int) -> list[bytes]:
    found = []
    for _ in range(_FRAMES_AT_ONCE):
        try:
            found.append(os.read(source, 65536))
        except BlockingIOError:
            break
    return found
