"""`python -m engine probe`: whether KV could move between two hosts, as one JSON document on stdout.

It is the last line there: UCX writes its own complaints to stdout too, before it.

    probe --listen ADDRESS:PORT      waits for the other end
    probe --dial ADDRESS:PORT        reaches it, tries again until the deadline

The first line of stdin is a word that both ends must be given. UCX is configured by its own variables, as an
engine's is. Exit 0 when both ways carried every byte, 75 when not; either way within --deadline.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from engine import __version__
from engine.core.errors import ConfigError, EngineError, Exit
from engine.transfer.probe import Probe, Write

RETRY = 0.1
# The interpreter itself may hang in NIXL; then the kernel ends it this much later.
GRACE = 3.0


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m engine probe", allow_abbrev=False)
    side = p.add_mutually_exclusive_group(required=True)
    side.add_argument("--listen", metavar="ADDRESS:PORT", help="wait here for the other end")
    side.add_argument("--dial", metavar="ADDRESS:PORT", help="reach the other end there")
    p.add_argument("--bytes", type=int, default=16 << 20, help="bytes of one write, at least 256 KiB")
    p.add_argument("--deadline", type=float, default=60.0, help="seconds for all of it")
    p.add_argument("--device", default="cpu", help="where the buffers lie: cpu or cuda")
    return p


def run_probe(argv: list[str]) -> int:
    """The exit code; the document is printed however it ends."""
    begin = time.monotonic()
    args = parser().parse_args(argv)
    address, port = _address(args.listen or args.dial)
    if args.deadline <= 0 or args.bytes < 1:
        raise ConfigError("bad_flag", "--deadline and --bytes must be above 0.")
    word = sys.stdin.readline().strip().encode()
    if not word:
        raise ConfigError("no_word", "The first line of stdin is empty; give both ends the same word there.")
    end = begin + args.deadline
    said = Said(args)
    said.guard(end)
    try:
        with _listen(address, port, end) if args.listen else _dial(address, port, end) as sock:
            _measure(said, args, word, sock, end)
    except OSError as error:
        said.fail("probe_unreachable", f"{address}:{port}: {error.strerror or error}.")
    except EngineError as error:
        said.fail(error.code, error.message)
    return said.end()


class Said:
    """The document, printed once: by the end of the run or by its deadline, whichever comes first."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.stage: Callable[[], str] = lambda: "reach the other end"
        self.document: dict[str, Any] = {
            "schema": 1,
            "ok": False,
            "side": "listen" if args.listen else "dial",
            "address": args.listen or args.dial,
            "code": "",
            "error": "",
            "out": None,
            "back": None,
            "versions": {},
            "theirs": {},
            "ucx": {k: v for k, v in sorted(os.environ.items()) if k.startswith("UCX_")},
        }
        self._lock = threading.Lock()

    def fail(self, code: str, error: str) -> None:
        self.document |= {"code": code, "error": error}

    def guard(self, end: float) -> None:
        """NIXL's calls have no deadline of their own, so the process has one."""
        timer = threading.Timer(max(0.0, end - time.monotonic()), self._expire)
        timer.daemon = True
        timer.start()
        signal.setitimer(signal.ITIMER_REAL, max(0.1, end - time.monotonic()) + GRACE)

    def end(self) -> int:
        with self._lock:
            print(json.dumps(self.document), flush=True)
            # Agents of a peer that vanished can hang as they are destroyed.
            os._exit(Exit.OK if self.document["ok"] else Exit.PATH)

    def _expire(self) -> None:
        self.fail("probe_deadline", f"Out of time: it was to {self.stage()}.")
        self.end()


def _measure(said: Said, args: argparse.Namespace, word: bytes, sock: socket.socket, end: float) -> None:
    versions = {"engine": __version__, **{name: version(name) for name in ("torch", "nixl")}}
    said.document["versions"] = versions
    said.stage = lambda: "start NIXL"
    probe = Probe(word, args.bytes, args.device, versions)
    said.stage = lambda: probe.stage
    out, back = probe.run(sock, bool(args.dial), end)
    said.document |= {"out": _shown(out), "back": _shown(back), "theirs": probe.theirs}
    wrong = [name for name, write in (("out", out), ("back", back)) if not write.right]
    if wrong:
        said.fail("probe_damaged", f"Bytes written {' and '.join(wrong)} are not those that arrived.")
    said.document["ok"] = not wrong


def _shown(write: Write) -> dict[str, Any]:
    return {
        "bytes": write.bytes,
        "seconds": round(write.seconds, 6),
        "gb_s": round(write.gb_s, 3),
        "verified": write.right,
    }


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError("bad_flag", f"{text} is not ADDRESS:PORT.")
    return host.strip("[]"), int(port)


def _listen(address: str, port: int, end: float) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as server:
        server.settimeout(max(0.1, end - time.monotonic()))
        return _ready(server.accept()[0])


def _dial(address: str, port: int, end: float) -> socket.socket:
    while True:
        try:
            return _ready(socket.create_connection((address, port), max(0.1, end - time.monotonic())))
        except ConnectionRefusedError:
            if time.monotonic() + RETRY >= end:
                raise
            time.sleep(RETRY)


def _ready(sock: socket.socket) -> socket.socket:
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
