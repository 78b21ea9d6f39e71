"""Who can reach the link's port but has no token: garbage, silence, floods. The pair links all the same."""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from collections.abc import Callable

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.types import FirstToken
from engine.transfer import handshake as h
from engine.transfer import messages as m
from engine.transfer.commands import AgentInfo
from engine.transfer.connection import MAX_STRANGERS, STRANGER_FRAME
from tests.engine.transfer.harness import Engine, until

QUICK = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
ROOM = {"room": 1, "ticket": 1}
FRAMES: list[m.Frame] = [
    m.Challenge(b"n" * 16),
    m.Refuse("link_failed", "", "no"),
    m.Envelope("a", "b", m.Want(**ROOM, pages=[1, 2, 3], tokens=48)),
    m.Envelope("a", "b", m.Done(**ROOM, tokens=3, first=FirstToken(token=1))),
    m.Envelope("a", "b", m.Cancel(**ROOM, code="aborted", message="x")),
    m.Envelope("a", "b", m.Ping()),
]
IDENTITY = h.Identity("p", "i", "prefill", {"kv_heads": 2}, [])
texts = st.text(max_size=20)
agents = st.builds(
    AgentInfo,
    rank=st.integers(-1, 3),
    metadata=st.binary(max_size=20),
    base=st.integers(0, 1 << 63),
    device=st.integers(-1, 9),
    heads=st.tuples(st.integers(-2, 4), st.integers(-2, 4)),
    pages=st.integers(-1, 1 << 40),
    memory=texts,
)
hellos = st.builds(
    m.Hello,
    instance=texts,
    role=st.sampled_from(["prefill", "decode", "", "both"]),
    incarnation=texts,
    expects=st.none() | texts,
    version=st.sampled_from([0, m.VERSION, 1 << 60]),
    fingerprint=st.dictionaries(
        st.sampled_from([*h.FINGERPRINT, "page_size", "x"]), texts | st.integers(-9, 9)
    ),
    agents=st.lists(agents, max_size=3),
    nonce=st.binary(max_size=20),
    mac=st.binary(max_size=40),
)


@QUICK
@given(st.binary(max_size=400), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_any_bytes_are_frames_or_a_protocol_error(data: bytes, cuts: list[int]) -> None:
    splitter, at = m.Splitter(limit=100), 0
    try:
        for cut in cuts * 400:
            if at >= len(data):
                break
            splitter.feed(data[at : at + cut])
            assert len(splitter._buffer) <= 104
            at += cut
    except m.ProtocolError as error:
        assert len(str(error)) < 500


@QUICK
@given(st.sampled_from(FRAMES), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_a_frame_with_flipped_bytes_is_a_frame_or_a_protocol_error(
    frame: m.Frame, flips: list[tuple[int, int]]
) -> None:
    body = bytearray(m.encode(frame)[4:])
    for at, value in flips:
        body[at % len(body)] = value
    try:
        got = m.decode(bytes(body))
    except m.ProtocolError:
        return
    assert isinstance(got, m.Challenge | m.Hello | m.Welcome | m.Refuse | m.Envelope)
    if not flips:
        assert got == frame


@QUICK
@given(st.lists(st.sampled_from(FRAMES), max_size=6), st.integers(1, 40))
def test_frames_survive_any_cut(frames: list[m.Frame], size: int) -> None:
    data, splitter, got = b"".join(map(m.encode, frames)), m.Splitter(), []
    for at in range(0, len(data), size):
        got += splitter.feed(data[at : at + size])
    assert got == frames


@pytest.mark.parametrize(
    "body",
    [
        b"\x91" * 100_000,  # arrays in arrays
        b"\x81\xa1a" * 50_000,  # maps in maps
        b"\xdd\xff\xff\xff\xff",  # an array of 2^32 elements that are not there
        b"\x83\xa4type\xa9challenge\xa5nonce\xc6\xff\xff\xff\xff",  # bytes that are not there
        b"\x82\xa4type\xa5hello\xa8instance\xdb\x7f\xff\xff\xff",
    ],
)
def test_frames_that_promise_much_cost_little(body: bytes) -> None:
    before = psutil.Process().memory_info().rss
    with pytest.raises(m.ProtocolError):
        m.decode(body)
    assert psutil.Process().memory_info().rss - before < 16 << 20


@QUICK
@given(hellos)
def test_an_introduction_without_the_token_is_refused_and_told_nothing(hello: m.Hello) -> None:
    refuse = h.refusal(hello, IDENTITY, b"token", b"n" * 16)
    assert refuse is not None and refuse.code == "link_unauthorized"


@QUICK
@given(hellos)
def test_even_with_the_token_an_odd_introduction_is_a_refusal(hello: m.Hello) -> None:
    signed = h.sign(hello, b"token", b"n" * 16)
    refuse = h.refusal(signed, IDENTITY, b"token", b"n" * 16)
    assert refuse is None or len(refuse.message) < 2000


def stranger(prefill: Engine, data: bytes = b"") -> socket.socket:
    sock = socket.create_connection(prefill.address.split(":"), timeout=30)  # type: ignore[arg-type]
    sock.sendall(data)
    return sock


def ended(sock: socket.socket) -> bool:
    """Read to the end; TimeoutError when the other side leaves it open."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def links(make: Callable[..., Engine], prefill: Engine) -> None:
    decode = make("decode", "decode-0", peers=[prefill.address])
    until(lambda: prefill.linked() and decode.linked(), "linked all the same", 60)


def test_garbage_and_long_frames_end_their_own_connection(engine: Callable[..., Engine]) -> None:
    prefill = engine("prefill", "prefill-0")
    long = struct.pack(">I", STRANGER_FRAME + 1)
    first = m.encode(m.Envelope("a", "b", m.Want(room=1, ticket=1, pages=[0], tokens=1)))
    for data in (os.urandom(4096), b"\x00" * 64, long, b"GET / HTTP/1.1\r\n\r\n", first, m.encode(FRAMES[0])):
        with stranger(prefill, data) as sock:
            assert ended(sock)
    assert prefill.transfer.snapshot() == []
    links(engine, prefill)


def test_a_stranger_that_says_little_is_ended_by_the_handshake_deadline(
    engine: Callable[..., Engine],
) -> None:
    prefill = engine("prefill", "prefill-0", env={"PD_HANDSHAKE_TIMEOUT": "1"})
    with stranger(prefill) as silent, stranger(prefill, b"\x00\x00") as slow:
        started = time.monotonic()
        slow.settimeout(0.1)
        open_ = True
        while open_ and time.monotonic() - started < 30:
            try:
                slow.sendall(b"\x00")  # a byte now and then
                open_ = bool(slow.recv(4096))
            except TimeoutError:
                pass
            except OSError:
                open_ = False
        assert not open_ and ended(silent)
    until(lambda: prefill.transfer.deadlines.fired().get("handshake", 0) >= 1, "it is counted")


def test_a_flood_of_strangers_is_bounded_and_keeps_nobody_out(engine: Callable[..., Engine]) -> None:
    """2,000 connections, each with a frame that never ends: as many as are kept, and no more memory."""
    prefill = engine("prefill", "prefill-0")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 4200, "this test needs descriptors"
    part = struct.pack(">I", STRANGER_FRAME) + bytes(1 << 16)
    before = psutil.Process().memory_info().rss
    socks = [stranger(prefill) for _ in range(2000)]
    for sock in socks[-MAX_STRANGERS:]:
        sock.sendall(part)
    for sock in socks[:-MAX_STRANGERS]:
        assert ended(sock)
        sock.close()
    links(engine, prefill)
    grown = psutil.Process().memory_info().rss - before
    assert grown < (MAX_STRANGERS << 20) + (64 << 20)
    for sock in socks[-MAX_STRANGERS:]:
        sock.close()
