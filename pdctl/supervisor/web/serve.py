"""The pages' server: one thread beside the supervisor's loop, bound to loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pdctl.errors import ConfigError
from pdctl.fleet.tokens import make_token, token_of
from pdctl.supervisor.address import parsed
from pdctl.supervisor.web.access import is_loopback
from pdctl.supervisor.web.app import App
from pdctl.supervisor.web.sources import Sources

CONNECTIONS = 128
HEAD_DEADLINE = 20.0
START, END = 10.0, 3.0  # seconds


class Pages:
    """`with Pages("127.0.0.1:9470", sources, token_file) as pages`. ConfigError for an address that is none
    or taken. On an address that others reach, readers need the token in `token_file`, which is made when it
    is missing; `hint` says so. `url` is where they are, with the port that was got for 0.
    """

    def __init__(self, address: str, sources: Sources, token_file: Path) -> None:
        host, port = parsed(address)
        self._open = is_loopback(host)
        self.hint = "" if self._open else f" (with the token in {token_file})"
        token = None
        if not self._open:
            make_token(token_file)
            token = token_of(token_file)
        self._socket = _listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        app = App(sources, lambda: self._server.should_exit)
        self._server = _Server(
            uvicorn.Config(
                app.asgi(token),
                http=_Bounded,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name="pdctl-pages", daemon=True)

    def __enter__(self) -> Pages:
        self._thread.start()
        end = time.monotonic() + START
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        if not self._server.started:
            raise ConfigError("page", f"The pages at {self.url} did not start.", "See the log above.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(END)
        self._socket.close()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(64)
    except (OSError, ValueError) as error:  # ValueError: of a name that no resolver would take
        listening.close()
        hint = f"Who holds it: ss -ltnp 'sport = :{port}'"
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError("page", f"Cannot serve pages at {host}:{port}: {why}.", hint) from None
    return listening


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the supervisor."""
        yield


class _Bounded(H11Protocol):
    """Closes a connection that asks for nothing: silent clients would keep the others out."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_DEADLINE, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)
