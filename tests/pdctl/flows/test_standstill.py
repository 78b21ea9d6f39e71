"""Who cannot drain any more is told from who is only late: two looks at a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.flows import standstill as looks
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.standstill import standstill
from tests.bench.procs import free_ports
from tests.pdctl.models import model_folder


class Says(BaseHTTPRequestHandler):
    """The documents in turn, the last one again and again; None is an answer that does not come."""

    documents: ClassVar[list[dict[str, Any] | None]] = []
    over: ClassVar[threading.Event] = threading.Event()

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        document = Says.documents.pop(0) if len(Says.documents) > 1 else Says.documents[0]
        if document is None:
            Says.over.wait(60.0)
            return
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    monkeypatch.setattr(looks, "GAP", 0.1)
    Says.over = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Says) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = tmp_path / "fleet.toml"
        init_fleet(path, Wanted("f", str(model_folder(tmp_path / "model"))))
        with Context(load_fleet(path)) as made:
            port = str(made.fleet.engine("decode-0").port)
        path.write_text(path.read_text().replace(f"port = {port}\n", f"port = {server.server_port}\n"))
        with Context(load_fleet(path)) as made:
            yield made
        Says.over.set()
        server.shutdown()


def state(
    rank: float = 0.2, leader: float = 0.1, turned: float = 0.0, status: str = "ready"
) -> dict[str, Any]:
    return {
        "status": status,
        "snapshot_age_s": leader,
        "ranks": [{"rank": 0, "heartbeat_age_s": 0.1}, {"rank": 1, "heartbeat_age_s": rank}],
        "progress": {"loop_age_s": turned},
        "timeouts": {"drain": {"value": 30.0}},
    }


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (state(), state(), ""),
        (state(rank=9.0), state(rank=9.1), "rank 1 is not heard"),
        (state(rank=9.0), state(rank=0.1), ""),
        (state(rank=9.0), state(rank=6.0), ""),
        (state(leader=20.0), state(leader=22.0), "its leader publishes nothing"),
        (state(turned=20.0), state(turned=22.0), ""),
        (state(turned=31.0), state(turned=33.0), "its scheduler does not turn"),
        (state(rank=9.0, status="starting"), state(rank=11.0, status="starting"), ""),
    ],
)
def test_what_stays_silent_stands_still(
    ctx: Context, first: dict[str, Any], second: dict[str, Any], words: str
) -> None:
    Says.documents = [first, second]
    assert standstill(ctx, ctx.fleet.engine("decode-0")) == (
        f"decode-0 stands still: {words}" if words else ""
    )


def test_an_open_port_that_answers_nothing_twice_does(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "QUICK", 0.3)
    Says.documents = [None]
    assert "its port is open and nothing answers" in standstill(ctx, ctx.fleet.engine("decode-0"))
    monkeypatch.setattr(looks, "QUICK", 3.0)
    Says.documents = [None, state()]
    assert standstill(ctx, ctx.fleet.engine("decode-0")) == "", "once is late"


def test_a_closed_port_does_not(ctx: Context) -> None:
    """Nothing is there that could be waited for."""
    (closed,) = free_ports(1)
    path = ctx.fleet.path
    port = ctx.fleet.engine("decode-0").port
    path.write_text(path.read_text().replace(f"port = {port}\n", f"port = {closed}\n"))
    with Context(load_fleet(path)) as moved:
        assert standstill(moved, moved.fleet.engine("decode-0")) == ""
