"""A deadline that fires is never silent: one log line with whose it was, its name and value; one counter."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable

import pytest

from engine.core.settings import BY_NAME
from engine.core.types import FirstToken
from engine.transfer.deadlines import Deadlines
from tests.engine.transfer.fleet_model import ADDRESS, TOKENS, Fleet
from tests.engine.transfer.harness import Engine, until

LINE = re.compile(
    r"(?P<code>\w+) room=(?P<room>\S+) request=(?P<request>\S+) age=(?P<age>[\d.]+)s peer=(?P<peer>\S+) "
    r"pages=(?P<pages>\S+) deadline=(?P<env>\w+)=(?P<value>[\d.]+)"
)
Lines = Callable[[], list[dict[str, str]]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The lines of deadlines so far, by their fields."""
    caplog.set_level(logging.WARNING, "pdctl.engine.transfer")

    def found() -> list[dict[str, str]]:
        matches = (LINE.fullmatch(record.getMessage()) for record in caplog.records)
        return [match.groupdict() for match in matches if match]

    return found


@pytest.fixture
def fleet() -> Fleet:
    """With the values that are shipped."""
    made = Fleet()
    made.connect()
    return made


def prefilled(fleet: Fleet, rid: str = "p1") -> None:
    pages = fleet.prefill.sink.pages.take(rid)
    assert pages is not None
    fleet.prefill.sender.open(1, rid)
    fleet.prefill.sender.computed(1, TOKENS, pages, FirstToken(token=1))


def grant(fleet: Fleet) -> None:
    pages = fleet.decode.sink.pages.take("d1")
    assert pages is not None and fleet.decode.receiver.grant(1, pages, TOKENS)


def ended(fleet: Fleet) -> tuple[str, str]:
    ends = fleet.prefill.sink.ends | fleet.decode.sink.ends
    return ends["p1"].code, ends["d1"].code


def line(code: str, request: str, peer: str, pages: str, name: str, value: str) -> dict[str, str]:
    named = {"room": "1", "request": request, "peer": peer, "pages": pages}
    return {"code": code, **named, "age": f"{float(value):.1f}", "env": BY_NAME[name].env, "value": value}


def test_a_stalled_transfer_ends_at_decodes_deadline_which_is_the_inner_one(
    fleet: Fleet, lines: Lines
) -> None:
    fleet.faults.arm("stall-transfer", count=1)
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    grant(fleet)
    prefilled(fleet)
    fleet.drain()
    fleet.advance(99.9)
    assert lines() == []
    fleet.advance(0.1)
    fleet.drain()
    assert lines() == [line("kv_transfer_timeout", "d1", "prefill/p0", "3", "transfer", "100")]
    assert fleet.decode.deadlines.fired() == {"transfer": 1}
    assert ended(fleet) == ("kv_transfer_timeout", "kv_transfer_timeout")
    assert "PD_DECODE_TRANSFER_TIMEOUT=100 s" in fleet.prefill.sink.ends["p1"].message
    assert "p1" in fleet.prefill.sink.quiets and "d1" in fleet.decode.sink.quiets
    fleet.advance(1000)
    assert len(lines()) == 1 and fleet.prefill.deadlines.fired() == {}


@pytest.mark.parametrize(
    "wait, left, side, other, peer",
    [(0, 100, "d1", "p1", "decode/d0"), (90, 30, "p1", "d1", "prefill/p0")],
)
def test_the_side_that_is_told_of_it_says_what_it_held(
    fleet: Fleet,
    lines: Lines,
    caplog: pytest.LogCaptureFixture,
    wait: float,
    left: float,
    side: str,
    other: str,
    peer: str,
) -> None:
    fleet.faults.arm("stall-transfer", count=1)
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    prefilled(fleet)
    fleet.advance(wait)
    grant(fleet)
    fleet.drain()
    fleet.advance(left)
    fleet.drain()
    assert [found["request"] for found in lines()] == [side]
    (told,) = [text for text in caplog.messages if text.startswith("ended_by_peer")]
    held = f"ended_by_peer room=1 request={other} age="
    assert told.startswith(held) and f" peer={peer} pages=3 " in told
    assert " code=kv_transfer_timeout: " in told and "_TIMEOUT=" in told


def test_an_abort_is_not_told_as_a_failure(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.faults.arm("stall-transfer", count=1)
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    grant(fleet)
    prefilled(fleet)
    fleet.drain()
    fleet.decode.receiver.abort(1, "client")
    fleet.drain()
    assert ended(fleet) == ("aborted", "aborted")
    assert not any("ended_by_peer" in text for text in caplog.messages)


def test_what_waited_for_pages_and_then_stalled_ends_at_prefills_watchdog(fleet: Fleet, lines: Lines) -> None:
    fleet.faults.arm("stall-transfer", count=1)
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    prefilled(fleet)
    fleet.advance(90)
    grant(fleet)
    fleet.drain()
    fleet.advance(29.9)
    assert lines() == []
    fleet.advance(0.1)
    fleet.drain()
    assert lines() == [line("kv_transfer_timeout", "p1", "decode/d0", "3", "inflight", "120")]
    assert fleet.prefill.deadlines.fired() == {"inflight": 1}
    assert ended(fleet) == ("kv_transfer_timeout", "kv_transfer_timeout")
    assert "p1" in fleet.prefill.sink.quiets and "d1" in fleet.decode.sink.quiets
    fleet.advance(1000)
    assert len(lines()) == 1 and fleet.decode.deadlines.fired() == {}


def test_a_wait_for_pages_ends_under_its_own_name(fleet: Fleet, lines: Lines) -> None:
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    prefilled(fleet)
    fleet.advance(100)
    fleet.drain()
    assert lines() == [line("prealloc_timeout", "d1", "prefill/p0", "0", "prealloc", "100")]
    assert fleet.decode.deadlines.fired() == {"prealloc": 1}
    assert ended(fleet) == ("prealloc_timeout", "prealloc_timeout")


def test_a_prefill_that_is_never_linked(fleet: Fleet, lines: Lines) -> None:
    fleet.decode.receiver.request(1, "d1", "elsewhere:9")
    fleet.advance(15)
    assert lines() == [line("link_failed", "d1", "elsewhere:9", "0", "handshake", "15")]
    assert fleet.decode.deadlines.fired() == {"handshake": 1}


def test_a_want_whose_request_never_comes(fleet: Fleet, lines: Lines) -> None:
    fleet.settings.set("transfer", 1000, 0)
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    grant(fleet)
    fleet.drain()
    fleet.settings.set("queue", 200, 0)
    fleet.prefill.sender.timeouts_changed()
    fleet.advance(200)
    assert lines() == [line("queue_timeout", "-", "decode/d0", "0", "queue", "200")]
    assert fleet.prefill.deadlines.fired() == {"queue": 1}


def test_a_value_raised_while_its_deadline_fires_counts_from_the_start(fleet: Fleet) -> None:
    """The new value is in force before the deadlines that are armed have moved."""
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    fleet.advance(60)
    fleet.settings.set("prealloc", 150, 0)
    fleet.advance(60)
    assert fleet.decode.deadlines.fired() == {}
    fleet.advance(29.9)
    assert fleet.decode.deadlines.fired() == {}
    fleet.advance(0.1)
    assert fleet.decode.deadlines.fired() == {"prealloc": 1}


def test_too_early_is_neither_counted_nor_forgotten() -> None:
    now = [0.0]
    deadlines, tries = Deadlines(lambda: now[0]), [5.0, True]
    deadlines.arm("x", "n", 1.0, lambda: tries.pop(0))
    now[0] = 1.0
    assert deadlines.run_due() == 0 and deadlines.next_at() == 5.0
    now[0] = 5.0
    assert deadlines.run_due() == 1 and deadlines.fired() == {"n": 1}


def test_a_host_that_answers_no_syn(engine: Callable[..., Engine], lines: Lines) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(address)  # the queue is full: a further SYN is dropped
        at = f"127.0.0.1:{address[1]}"
        decode = engine("decode", "decode-0", peers=[at], env={"PD_CONNECT_TIMEOUT": "0.2"})
        until(lambda: decode.transfer.deadlines.fired().get("connect"), "the connect is given up")
        until(lambda: lines(), "it is told")
        for sock in waiting:
            sock.close()
    told = lines()[0]
    assert (told["code"], told["peer"], told["env"], told["value"]) == (
        "link_failed",
        at,
        "PD_CONNECT_TIMEOUT",
        "0.2",
    )


def test_a_mute_stranger(engine: Callable[..., Engine], lines: Lines) -> None:
    prefill = engine("prefill", "prefill-0", env={"PD_HANDSHAKE_TIMEOUT": "0.2"})
    with socket.create_connection(("127.0.0.1", int(prefill.address.split(":")[1])), 5) as mute:
        until(lambda: lines(), "it is given up")
        assert lines()[0]["peer"] == f"127.0.0.1:{mute.getsockname()[1]}"
    assert lines()[0]["env"] == "PD_HANDSHAKE_TIMEOUT"
    assert prefill.transfer.deadlines.fired() == {"handshake": 1}
