"""Linking an edge anew: whom it asks and in which order; it believes documents and a canary alone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet
from pdctl.flows.relink import edge_of, relink, unlinked
from pdctl.flows.supervise.act import Terms, act
from pdctl.remote.journal_read import list_runs, read_run
from pdctl.supervisor.decide import Decision
from pdctl.supervisor.policy import Act
from tests.pdctl.models import model_folder

LIVES = {"prefill-0": "p1", "decode-0": "d1"}
EDGE = "prefill-0 -> decode-0"


class Pair:
    """Two engines that are only their answers. A side links when both were asked to, if it `heals`.

    Unless they `act`, what was linked stays so.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.heals, self.stale, self.linked, self.serves = True, False, False, True
        self.unknown, self.acts, self.since = "prefill-0", True, time.monotonic()
        self.servers = {name: self._server(name) for name in LIVES}

    def _server(self, name: str) -> ThreadingHTTPServer:
        pair = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                self.reply(pair.state(name))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/admin/relink":
                    assert self.headers["Authorization"].startswith("Bearer ")
                    return self.reply(*pair.relink(name, body))
                text = " Paris." if pair.serves else ""
                return self.reply({"choices": [{"text": text}]})

            def reply(self, body: dict[str, Any], status: int = 200) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def state(self, name: str) -> dict[str, Any]:
        other = "decode-0" if name == "prefill-0" else "prefill-0"
        row = {
            "instance": other,
            "incarnation": LIVES[other],
            "address": "127.0.0.1:9",
            "linked": self.linked,
            "since_age_s": time.monotonic() - self.since,
        }
        row |= {"stale": self.stale and name == "prefill-0", "error": None if self.linked else "no route"}
        return {"instance": name, "incarnation": LIVES[name], "peers": [row]}

    def relink(self, name: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        self.asked.append((name, body))
        if len(self.asked) == 2 and self.acts:
            self.linked, self.since = self.heals, time.monotonic()
        if name == self.unknown:
            return {"error": {"code": "unknown_peer", "message": "This engine knows no decode-0."}}, 404
        return {"peer": body["peer"], "linked": False, "rooms": 0}, 200


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair()
    yield made
    for server in made.servers.values():
        server.shutdown()
        server.server_close()


@pytest.fixture
def ctx(tmp_path: Path, pair: Pair) -> Iterator[Context]:
    path = tmp_path / "fleet.toml"
    init_fleet(path, Wanted("test", str(model_folder(tmp_path / "model"))))
    text = path.read_text()
    for name, server in pair.servers.items():
        port = load_fleet(path).engine(name).port
        text = text.replace(f"port = {port}\n", f"port = {server.server_address[1]}\n")
    path.write_text(text)
    with Context(load_fleet(path)) as made:
        yield made


def test_both_ends_are_asked_prefill_first_and_a_canary_has_to_pass(ctx: Context, pair: Pair) -> None:
    edge = edge_of(ctx, "decode-0", "prefill-0")
    assert unlinked(ctx, *edge) == "prefill-0 is not linked with decode-0 (no route)"
    assert relink(ctx, *edge) >= 0
    assert pair.asked == [("prefill-0", {"peer": "decode-0"}), ("decode-0", {"peer": "prefill-0"})]
    assert unlinked(ctx, *edge) == ""
    run = list_runs(ctx.fleet.paths.journal)[0]
    assert (run.state, run.again) == ("done", ("relink", "prefill-0", "decode-0", "--yes", "--wait", "20"))
    steps = [s.id for s in read_run(ctx.fleet.paths.journal, run.id).steps]
    assert steps[-2:] == ["linked/prefill-0/decode-0", "canary/prefill-0/decode-0"]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"heals": False}, "not_linked", "still: prefill-0 is not linked with decode-0 \\(no route\\)"),
        ({"stale": True}, "not_linked", "prefill-0 is not linked with decode-0"),
        ({"acts": False, "linked": True}, "not_linked", "prefill-0 is not linked with decode-0"),
        ({"serves": False}, "canary_failed", "is linked and the canary over it failed: the answer is empty"),
    ],
    ids=["not linked", "stale", "the link of before", "serves nothing"],
)
def test_what_does_not_help_is_a_failure_that_names_the_co_restart(
    ctx: Context, pair: Pair, fields: dict[str, bool], code: str, words: str
) -> None:
    vars(pair).update(fields)
    with pytest.raises(PdctlError, match=words) as caught:
        relink(ctx, *edge_of(ctx, "prefill-0", "decode-0"), wait=0.3)
    assert caught.value.code == code and "pdctl restart --co a" in (caught.value.hint or "")
    assert list_runs(ctx.fleet.paths.journal)[0].state == "failed"


def test_a_refusal_of_another_kind_is_no_link(ctx: Context, pair: Pair) -> None:
    pair.servers["prefill-0"].shutdown()
    pair.servers["prefill-0"].server_close()
    with pytest.raises(PdctlError) as caught:
        relink(ctx, *edge_of(ctx, "prefill-0", "decode-0"))
    assert caught.value.exit is Exit.UNREACHABLE and not pair.asked


def test_two_names_that_are_no_edge(ctx: Context) -> None:
    with pytest.raises(ConfigError, match="no prefill and decode of one cell"):
        edge_of(ctx, "decode-0", "decode-0")
    with pytest.raises(ConfigError, match="Did you mean decode-0"):
        edge_of(ctx, "decode-1", "prefill-0")


def test_the_supervisor_links_what_is_not_linked_and_refuses_what_is(ctx: Context, pair: Pair) -> None:
    decision = Decision(Act.RELINK, EDGE, "a", "PD502", EDGE, "why")
    terms = Terms(1, frozenset(), 0.5, lambda: None)
    done = act(ctx.fleet, decision, terms, print)
    assert done.outcome == "done" and "a canary passed" in done.detail and len(pair.asked) == 2
    assert list_runs(ctx.fleet.paths.journal)[0].again[:3] == ("relink", "prefill-0", "decode-0")
    refused = act(ctx.fleet, decision, terms, print)
    assert (refused.outcome, refused.detail) == ("refused", f"{EDGE} is linked.") and len(pair.asked) == 2
