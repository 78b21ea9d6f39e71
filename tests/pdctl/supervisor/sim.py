"""A fleet of any size that is only its answers: recorded documents of real engines, served over real HTTP.

Eight engines a cell and a host, two prefills and six decodes; a host is an address of 127.0.0.0/8. Counters
move with time, so that a look sees work. `python -m tests.pdctl.supervisor.sim ENGINES PORT` serves one,
until SIGUSR1 makes all of it silent.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pdctl.flows.init import Wanted, init_fleet
from tests.bench.procs import free_ports
from tests.pdctl.models import model_folder

RECORDED = Path(__file__).parents[2] / "cases/bundles/healthy/recorded-busy"
CELL, PREFILLS = 8, 2
_MARK = 987654321987  # a number that no document has: where the token counter goes


def address(cell: int) -> str:
    return f"127.20.{cell // 250}.{cell % 250 + 1}"


def names(engines: int) -> Iterator[tuple[int, int, str]]:
    """(cell, place in it, name) of every engine."""
    for number in range(engines):
        cell, place = divmod(number, CELL)
        role = "prefill" if place < PREFILLS else "decode"
        yield cell, place, f"{role}-{cell}-{place}"


def _document(party: str, file: str = "state.1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / party / f"{file}.json").read_text())
    return found


def _state(name: str, cell: int, number: int) -> bytes:
    party = "prefill-0" if name.startswith("prefill") else "decode-0"
    state = _document(party) | {"instance": name, "cell": f"c{cell}", "incarnation": f"{number:016x}"}
    state["progress"] = state["progress"] | {"tokens_generated": _MARK}
    return json.dumps(state).encode()


def _ledger(requests: int) -> bytes:
    ledger = _document("router", "requests.1")
    first = ledger["requests"][0]
    ledger["requests"] = [first | {"id": f"req-{n:016x}", "age_s": 0.01 * n} for n in range(requests)]
    return json.dumps(ledger).encode()


def _answer(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Sim:
    """`asked` counts requests; engines in `silent` take a connection and never answer."""

    def __init__(self, engines: int, port: int) -> None:
        self.engines, self.port = engines, port
        self.asked = 0
        self.silent: set[str] = set()
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        for number, (cell, place, name) in enumerate(names(self.engines)):
            await self._listen(
                address(cell), self.port + place, name, {"/v1/state": _state(name, cell, number)}
            )
        documents = {"/v1/state": json.dumps(_document("router")).encode(), "/v1/requests": _ledger(500)}
        await self._listen(address(0), self.port + CELL, "router", documents)

    async def _listen(self, host: str, port: int, name: str, documents: dict[str, bytes]) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    if name in self.silent:
                        await reader.read()
                        return
                    self.asked += 1
                    body = documents[head.split(b" ", 2)[1].decode()]
                    moved = str(int(time.monotonic() * 100)).encode()
                    writer.write(_answer(body.replace(str(_MARK).encode(), moved)))
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        self._servers.append(await asyncio.start_server(serve, host, port, backlog=256))

    def mute(self) -> None:
        """From now on nobody answers."""
        self.silent = {"router", *(name for _, _, name in names(self.engines))}

    async def stop(self) -> None:
        for server in self._servers:
            server.close()


@contextmanager
def somewhere(engines: int) -> Iterator[Sim]:
    """Where its ports, a row, are free."""
    for tried in range(10):
        with ExitStack() as opened:
            try:
                sim = opened.enter_context(running(engines, free_ports(1)[0]))
            except OSError:
                if tried == 9:
                    raise
                continue
            yield sim
            return


@contextmanager
def running(engines: int, port: int) -> Iterator[Sim]:
    """On a thread of this process."""
    loop, sim = asyncio.new_event_loop(), Sim(engines, port)
    loop.run_until_complete(sim.start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield sim
    finally:
        asyncio.run_coroutine_threadsafe(sim.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def fleet_file(folder: Path, engines: int, port: int) -> Path:
    """A fleet file of the whole simulated fleet, beside a token and profiles."""
    path = folder / "fleet.toml"
    init_fleet(path, Wanted("sim", str(model_folder(folder / "model"))))
    text = path.read_text().partition("[hosts")[0]
    for cell in sorted({cell for cell, _, _ in names(engines)}):
        root = folder / "hosts" / f"h{cell}"
        text += f'[hosts.h{cell}]\ntransport = "local"\naddress = "{address(cell)}"\nroot = "{root}"\n'
        text += 'units = "process"\n\n'
    for cell, place, name in names(engines):
        role = name.partition("-")[0]
        text += f'[cells.c{cell}.engines.{name}]\nrole = "{role}"\nhost = "h{cell}"\nport = {port + place}\n'
        text += f"bootstrap_port = {port + 100 + place}\n\n" if role == "prefill" else "\n"
    text += f'[router]\nhost = "h0"\nport = {port + CELL}\n'
    path.write_text(text)
    return path


async def _serve(engines: int, port: int) -> None:
    sim = Sim(engines, port)
    await sim.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, sim.mute)
    print("up", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
