"""Refused, silent, unreachable and broken answers are told apart, within the deadline."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from pdctl.adapters.bundled import engine_sample, router_sample
from pdctl.adapters.endpoints import Server
from pdctl.adapters.picture import Reach
from pdctl.adapters.probe import Answer, classify, get
from pdctl.facts.missing import Missing
from pdctl.flows.collect.parties import Collection, ask_party


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """A listener that answers every connection with `answer`, or never."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.recv(4096)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.close()
        for connection in held:
            connection.close()


def ask(url: str, deadline: float = 0.5) -> Answer:
    async def one() -> Answer:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await get(client, f"{url}/v1/state", deadline)

    return asyncio.run(one())


def test_nothing_listens_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert ask(f"http://127.0.0.1:{port}").reach is Reach.REFUSED


def test_an_open_silent_port_times_out_at_its_deadline() -> None:
    with server(None) as url:
        begin = time.monotonic()
        answer = ask(url)
    assert answer.reach is Reach.TIMED_OUT
    assert time.monotonic() - begin < 5.0


def test_an_answer_that_trickles_is_given_up() -> None:
    """Each byte comes in time, the whole answer never does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.1)

        threading.Thread(target=trickle, daemon=True).start()
        begin = time.monotonic()
        answer = ask(f"http://127.0.0.1:{listener.getsockname()[1]}", 0.4)
    assert answer.reach is Reach.TIMED_OUT and "did not end" in answer.detail
    assert time.monotonic() - begin < 10.0


def test_a_frozen_engine_is_asked_once() -> None:
    async def twice(url: str) -> Collection:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await ask_party(client, Server("d", "bundled", "decode", url), 0.1, False, {})

    with server(None) as url:
        found = asyncio.run(twice(url))
    assert {(a.name, a.sample, a.outcome) for a in found.asked} == {
        ("state", 1, "timed out"),
        ("metrics", 1, "timed out"),
    }


def test_a_connect_without_reply_is_unreachable() -> None:
    request = httpx.Request("GET", "http://x")
    assert classify(httpx.ConnectTimeout("late", request=request))[0] is Reach.UNREACHABLE
    assert classify(httpx.ReadTimeout("late", request=request))[0] is Reach.TIMED_OUT
    assert classify(httpx.ConnectError("No route to host", request=request))[0] is Reach.UNREACHABLE


def test_html_and_errors_are_bad_answers() -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"
    with server(page) as url:
        assert ask(url).detail == "the answer is not JSON"
    broken = b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n{}"
    with server(broken) as url:
        answer = ask(url)
    assert (answer.reach, answer.detail) == (Reach.BAD_ANSWER, "HTTP 500")


def test_a_document_off_contract_names_the_place() -> None:
    sample = engine_sample(Answer(Reach.OK, {"schema": 1, "instance": "x"}, "", 0.0))
    assert sample.reach is Reach.BAD_ANSWER
    assert isinstance(sample.picture, Missing) and "required property" in sample.picture.reason


def test_router_without_its_ledger_keeps_its_state() -> None:
    silent = Answer(Reach.TIMED_OUT, None, "no answer", 2.0)
    state = {
        "instance": "r", "incarnation": "0" * 16, "pid": 1, "started_at": 1, "now": 2, "address": "a",
        "admission": "open", "held": 0, "hold_age_s": None, "engines": [], "timeouts": {},
        "counters": {"requests_failed": {}}, "environ": {},
    }  # fmt: skip
    sample = router_sample(Answer(Reach.OK, state, "", 0.1), silent)
    assert not isinstance(sample.picture, Missing)
    assert isinstance(sample.picture.requests, Missing)
