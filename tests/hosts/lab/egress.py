"""An HTTP(S) proxy at ctl:3128, so that a host can install from a package index.

The listening socket lives on the hosts' network and the outgoing ones on the machine's: no NAT, no
forwarding, no route. It reaches the Debian mirrors of this machine and pip's own index, nothing else.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

from tests.hosts.lab import netns
from tests.hosts.lab.image import apt_mirrors
from tests.hosts.lab.names import Names

PORT = 3128


def allowed() -> set[str]:
    """Host names; TESTHOSTS_ALLOW adds more, with commas between them."""
    names = {urlsplit(url).hostname or "" for url in apt_mirrors()}
    pip = "from pip._internal.models.index import PyPI; print(PyPI.netloc, PyPI.file_storage_domain)"
    index = subprocess.run([sys.executable, "-c", pip], capture_output=True, text=True, check=True)
    return names | set(index.stdout.split()) | set(os.environ.get("TESTHOSTS_ALLOW", "").split(",")) - {""}


def serve(names: Names, ready: Path) -> None:
    known = allowed()
    with netns.inside(names.switch):
        server = socket.create_server((names.address("ctl"), PORT), backlog=64)
    ready.write_text(str(os.getpid()))
    while True:
        client, _ = server.accept()
        threading.Thread(target=_serve_one, args=(client, known), daemon=True).start()


def _serve_one(client: socket.socket, known: set[str]) -> None:
    with client, contextlib.suppress(OSError, ValueError, IndexError):
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(4096)
            if not data:
                return
            head += data
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ", 2)
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        if url.hostname not in known:
            client.sendall(b"HTTP/1.1 403 not allowed\r\n\r\n")
            return
        with socket.create_connection((url.hostname, url.port or 80), timeout=60) as upstream:
            upstream.settimeout(None)
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 ok\r\n\r\n")
            else:
                upstream.sendall(_direct(head, method, url.path, url.query))
            back = threading.Thread(target=_pump, args=(client, upstream), daemon=True)
            back.start()
            _pump(upstream, client)
            back.join()


def _direct(head: bytes, method: str, path: str, query: str) -> bytes:
    """The request as a server wants it, one a connection."""
    rest = head.split(b"\r\n", 1)[1].split(b"\r\n")
    kept = [line for line in rest if not line.lower().startswith((b"connection:", b"proxy-"))]
    where = f"{path or '/'}?{query}" if query else path or "/"
    return f"{method} {where} HTTP/1.1\r\nConnection: close\r\n".encode() + b"\r\n".join(kept)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
