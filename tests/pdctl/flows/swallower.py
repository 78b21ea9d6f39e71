"""What lies between a router and an engine that never hears of a request."""

from __future__ import annotations

import contextlib
import socket
import threading


class Swallower:
    """A port that hands GETs on to an engine's and keeps every POST for ever."""

    def __init__(self, engine: int) -> None:
        self._engine = engine
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._kept: list[socket.socket] = []

    def __enter__(self) -> Swallower:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
        for kept in self._kept:
            kept.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._kept.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._engine)) as engine:
            self._kept.append(engine)
            threading.Thread(target=self._back, args=(engine, client), daemon=True).start()
            while data := client.recv(65536):
                if data.startswith(b"POST"):
                    threading.Event().wait(120)
                engine.sendall(data)

    def _back(self, engine: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := engine.recv(65536):
                client.sendall(data)
