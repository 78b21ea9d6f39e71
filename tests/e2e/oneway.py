"""A TCP proxy that can swallow the bytes of one direction while both connections stay open."""

from __future__ import annotations

import socket
import threading
from types import TracebackType


class OneWay:
    """Listens on `port` of loopback and forwards to `target`. `swallow` names who is no longer heard."""

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))
        self._socks: list[socket.socket] = []
        self._muted = ""
        self.swallowed = 0

    def __enter__(self) -> OneWay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in (self._listener, *self._socks):
            sock.close()

    def swallow(self, who: str) -> None:
        """`dialer` or `listener` is heard no more, on the connections that are open now; the others are."""
        self._muted = who

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._muted = ""  # a new connection is whole again
            self._socks += [near, far]
            for who, source, sink in (("dialer", near, far), ("listener", far, near)):
                threading.Thread(target=self._pump, args=(who, source, sink), daemon=True).start()

    def _pump(self, who: str, source: socket.socket, sink: socket.socket) -> None:
        """Until either end is gone. A muted direction is read and dropped, its end included."""
        muted = False
        try:
            while data := source.recv(1 << 16):
                muted = muted or self._muted == who
                if muted:
                    self.swallowed += len(data)
                else:
                    sink.sendall(data)
            if not (muted or self._muted == who):
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # closed, here or there: the same to a proxy
