"""Notices arrive once, after failures too, and never hold anybody up."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pdctl.flows.supervise.notices import QUEUED, Teller
from pdctl.supervisor.outbox import OLDEST, Outbox
from pdctl.supervisor.policy import Channel
from pdctl.supervisor.ward import Notice

QUICK = (0.01, 0.01, 0.01)
BRIEF = 3.0  # seconds until a notice is given up


class Hook(BaseHTTPRequestHandler):
    refuse: ClassVar[int] = 0
    got: ClassVar[list[tuple[dict[str, str], dict[str, Any]]]] = []

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Hook.got.append((dict(self.headers), body))
        Hook.refuse, failing = max(0, Hook.refuse - 1), Hook.refuse > 0
        self.send_response(503 if failing else 204)
        self.end_headers()


@pytest.fixture
def url() -> Iterator[str]:
    Hook.got, Hook.refuse = [], 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/x"
    server.shutdown()
    server.server_close()


def until(check: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end
        time.sleep(0.005)


def notice(text: str = "wedged", kind: Any = "opened") -> Notice:
    return Notice(kind, 3, "a", ("PD501",), text, 1e9)


def teller(folder: Path, said: list[str], patience: float = OLDEST, **channels: Channel) -> Teller:
    return Teller("test", folder, channels, said.append, outbox(folder), QUICK, patience)


def outbox(folder: Path) -> Outbox:
    return Outbox(folder / "supervisor.db")


def test_a_webhook_that_fails_is_tried_again_under_the_same_key(url: str, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "hook-token").write_text("s3cret\n")
    made = teller(tmp_path, said, ops=Channel(webhook=url, secret="hook-token"))
    Hook.refuse = 2
    made.tell(notice())
    until(lambda: len(Hook.got) == 3)
    heads, bodies = zip(*Hook.got, strict=True)
    assert {h["Idempotency-Key"] for h in heads} == {bodies[0]["id"]}
    assert heads[0]["Authorization"] == "Bearer s3cret"
    assert {k: bodies[0][k] for k in ("fleet", "kind", "incident", "cell", "codes", "text")} == {
        "fleet": "test",
        "kind": "opened",
        "incident": 3,
        "cell": "a",
        "codes": ["PD501"],
        "text": "wedged",
    }
    made.close()
    assert said == ["notify ops: HTTP 503; it is tried again"]


def test_one_that_never_arrives_is_given_up_aloud(url: str, tmp_path: Path) -> None:
    said: list[str] = []
    made = teller(tmp_path, said, BRIEF, ops=Channel(webhook=url))
    Hook.refuse = 9999
    made.tell(notice())
    until(lambda: any("given up after" in s for s in said))
    assert len(Hook.got) > 1 and not outbox(tmp_path).waiting()
    made.close()


@pytest.mark.parametrize(
    "odd",
    [
        Channel(webhook="http://127.0.0.1:port/"),
        Channel(command=["a\0b"]),
        Channel(webhook="u", secret="odd"),
    ],
    ids=["an address that is none", "a command that is none", "a secret that is none"],
)
def test_a_channel_that_cannot_be_used_takes_no_other_along(url: str, tmp_path: Path, odd: Channel) -> None:
    said: list[str] = []
    (tmp_path / "odd").write_bytes(b"\xff\n")
    made = teller(tmp_path, said, BRIEF, a_odd=odd, ops=Channel(webhook=url))
    made.tell(notice())
    until(lambda: Hook.got and any("given up" in s for s in said))
    made.close()


def test_the_same_notice_is_told_once_and_only_to_who_wants_its_kind(url: str, tmp_path: Path) -> None:
    made = teller(tmp_path, [], ops=Channel(webhook=url, on=["person", "closed"]))
    for _ in range(3):
        made.tell(notice(kind="opened"))
        made.tell(notice(kind="person"))
    made.tell(notice(kind="closed"))
    made.close()
    assert [body["kind"] for _, body in Hook.got] == ["person", "closed"]


def test_two_fleets_and_two_events_of_the_same_words_have_ids_of_their_own(url: str, tmp_path: Path) -> None:
    said: list[str] = []
    for fleet in ("east", "west"):
        made = Teller(fleet, tmp_path, {"hook": Channel(webhook=url)}, said.append, outbox(tmp_path), QUICK)
        for at in (1e9, 1e9 + 60.0):
            made.tell(replace(notice(), at=at))
        made.close()
    until(lambda: len(Hook.got) == 4)
    assert len({body["id"] for _, body in Hook.got}) == 4


def test_a_command_gets_the_notice_on_stdin_and_what_it_says_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    keep = ["sh", "-c", f"cat > {tmp_path}/got"]
    fail = [sys.executable, "-c", "import sys; sys.exit('no such room')"]
    made = teller(tmp_path, said, BRIEF, keep=Channel(command=keep), fail=Channel(command=fail))
    made.tell(notice())
    until(lambda: any("given up" in s for s in said))
    made.close()
    assert json.loads((tmp_path / "got").read_text())["text"] == "wedged"
    assert said[0] == "notify fail: exit code 1: no such room; it is tried again"


def test_a_silent_receiver_holds_nobody_up_and_the_queue_is_bounded(tmp_path: Path) -> None:
    said: list[str] = []
    held = threading.Event()
    made = teller(tmp_path, said, ops=Channel(command=["x"]))
    made._send = lambda channel, body: str(held.wait(60))[:0]  # type: ignore[method-assign]
    for n in range(QUEUED + 50):
        made.tell(notice(f"n{n}"))
    assert len(made._letters) <= QUEUED and any("dropped" in s for s in said)
    assert len(outbox(tmp_path).waiting()) <= QUEUED
    held.set()
    made.close()


def test_what_did_not_arrive_is_sent_by_the_successor_once(url: str, tmp_path: Path) -> None:
    """The receiver is away and the supervisor dies meanwhile."""
    Hook.refuse = 1
    first = Teller("test", tmp_path, {"ops": Channel(webhook=url)}, print, outbox(tmp_path), (3600.0,))
    first.tell(notice())
    until(lambda: len(Hook.got) == 1)
    second = teller(tmp_path, [], ops=Channel(webhook=url))
    until(lambda: len(Hook.got) == 2)
    second.close()
    assert len({head["Idempotency-Key"] for head, _ in Hook.got}) == 1 and not outbox(tmp_path).waiting()
    teller(tmp_path, [], ops=Channel(webhook=url)).close()
    assert len(Hook.got) == 2


def test_one_that_waited_too_long_is_given_up_by_the_successor_too(url: str, tmp_path: Path) -> None:
    kept, said = outbox(tmp_path), list[str]()
    kept.put("n1", "ops", {"id": "n1"})
    kept._rows.run("UPDATE outbox SET at = at - 86400")
    Hook.refuse = 9999
    made = Teller("test", tmp_path, {"ops": Channel(webhook=url)}, said.append, kept)
    until(lambda: any("given up after 1 tries" in s for s in said))
    assert not kept.waiting()
    made.close()
