"""Frames: what goes in comes out, however the stream is cut; strangers' bytes only raise ProtocolError."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.types import FirstToken
from engine.transfer import messages as m
from engine.transfer.commands import AgentInfo
from engine.transfer.handshake import Identity, hello, refusal, welcome

AGENT = AgentInfo(rank=0, metadata=b"\x00\xff", base=1 << 40, device=0, heads=(0, 3), pages=8)
MARKS: dict[str, str | int] = {
    "model": "a", "dtype": "float32", "page_size": 2, "layout": "l", "layers": 1, "kv_heads": 3, "head_dim": 4
}  # fmt: skip
ME = Identity("decode-0", "d" * 16, "decode", MARKS, [AGENT])
OTHER = Identity("prefill-0", "e" * 16, "prefill", MARKS, [AGENT])
MINE, THEIRS = b"m" * 16, b"t" * 16
BODIES: list[m.Body] = [
    m.Linked(),
    m.Ping(),
    m.Want(room=2**63 - 1, ticket=1, pages=[3, 1], tokens=20),
    m.Chunk(room=1, ticket=1, pages_done=1, bytes=10),
    m.Done(room=1, ticket=1, tokens=20, first=FirstToken(token=5)),
    m.Taken(room=1, ticket=1),
    m.Failed(room=1, ticket=1, code="peer_lost", message="x"),
    m.Cancel(room=1, ticket=1, code="aborted", message="y"),
    m.Quiesced(room=1, ticket=1),
]
FRAMES: list[m.Frame] = [
    m.Challenge(MINE),
    hello(ME, b"t", None, MINE, THEIRS),
    welcome(OTHER, b"t", "d" * 16, THEIRS, MINE),
    m.Refuse("peer_incompatible", "dtype", "z"),
    *(m.Envelope("a", "b", body) for body in BODIES),
]


@given(cuts=st.lists(st.integers(1, 200), max_size=40))
def test_frames_survive_any_cut_of_the_stream(cuts: list[int]) -> None:
    stream = b"".join(map(m.encode, FRAMES))
    splitter, got, at = m.Splitter(), [], 0
    for size in [*cuts, len(stream)]:
        got += splitter.feed(stream[at : at + size])
        at += size
    assert got == FRAMES


@given(data=st.binary(max_size=300))
def test_random_bytes_raise_only_protocol_errors(data: bytes) -> None:
    try:
        m.Splitter().feed(data)
        m.decode(data)
    except m.ProtocolError:
        pass


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TAGS = st.sampled_from(["hello", "welcome", "env", "challenge", "refuse"])


@given(
    tag=TAGS,
    values=st.dictionaries(st.sampled_from(["src", "dst", "body", "nonce", "agents", "mac"]), VALUES),
)
def test_well_formed_msgpack_of_the_wrong_shape(tag: str, values: dict[str, object]) -> None:
    try:
        m.decode(msgspec.msgpack.encode({"type": tag, **values}))
    except m.ProtocolError:
        pass


@given(index=st.integers(0, len(FRAMES) - 1), at=st.integers(0, 400), bit=st.integers(0, 7))
def test_a_flipped_bit_is_a_frame_or_a_protocol_error(index: int, at: int, bit: int) -> None:
    data = bytearray(m.encode(FRAMES[index])[4:])
    data[at % len(data)] ^= 1 << bit
    try:
        m.decode(bytes(data))
    except m.ProtocolError:
        pass


def test_a_long_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(m.ProtocolError, match="past the limit"):
        m.Splitter(limit=1000).feed(struct.pack(">I", 1001))
    with pytest.raises(m.ProtocolError, match="past the limit"):
        m.encode(m.Challenge(bytes(m.MAX_FRAME)))


def test_introductions_prove_the_token_and_every_field() -> None:
    good = hello(ME, b"token", None, MINE, THEIRS)
    assert refusal(good, OTHER, b"token", THEIRS) is None
    for token, nonce in ((b"other", THEIRS), (b"token", MINE), (b"", THEIRS)):
        refuse = refusal(good, OTHER, token, nonce)
        assert refuse is not None and refuse.code == "link_unauthorized"
    forged: dict[str, object] = {
        "incarnation": "f" * 16,
        "agents": [],
        "fingerprint": {},
        "nonce": b"q" * 16,
        "expects": "x",
        "mac": b"",
    }
    for name, value in forged.items():
        refuse = refusal(msgspec.structs.replace(good, **{name: value}), OTHER, b"token", THEIRS)
        assert refuse is not None and refuse.code == "link_unauthorized", name
    assert b"token" not in m.encode(good)


def test_a_hello_cannot_be_played_back_as_a_welcome() -> None:
    """The direction is under the HMAC: the same fields signed as Hello do not prove a Welcome."""
    said = hello(OTHER, b"token", None, THEIRS, MINE)
    fields = {name: getattr(said, name) for name in said.__struct_fields__}
    refuse = refusal(m.Welcome(**fields), ME, b"token", MINE)
    assert refuse is not None and refuse.code == "link_unauthorized"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"agents": [msgspec.structs.replace(AGENT, rank=1)]}, "agents"),
        ({"agents": [msgspec.structs.replace(AGENT, heads=(0, 2))]}, "agents"),
        ({"role": "prefill"}, "role"),
        ({"role": "both"}, "role"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], field: str) -> None:
    fields = {
        "instance": "d",
        "incarnation": "d" * 16,
        "role": "decode",
        "fingerprint": MARKS,
        "agents": [AGENT],
    }
    them = Identity(**(fields | change))  # type: ignore[arg-type]
    refuse = refusal(hello(them, b"t", None, MINE, THEIRS), OTHER, b"t", THEIRS)
    assert refuse is not None and (refuse.code, refuse.field) == ("peer_incompatible", field)


def test_tp_may_differ() -> None:
    them = Identity("d", "d" * 16, "decode", MARKS | {"tp": 2}, [AGENT])
    assert refusal(hello(them, b"t", None, MINE, THEIRS), OTHER, b"t", THEIRS) is None


@pytest.mark.parametrize(("layout", "refused"), [("replicated-1", False), ("opaque-1", True)])
def test_pages_that_only_the_model_can_read_move_whole(layout: str, refused: bool) -> None:
    agent = msgspec.structs.replace(AGENT, heads=(0, 1))
    marks = MARKS | {"layout": layout, "kv_heads": 1}
    me = Identity("decode-0", "d" * 16, "decode", marks, [agent])
    other = Identity("prefill-0", "e" * 16, "prefill", marks | {"page_size": 4}, [agent])
    found = refusal(hello(other, b"t", None, THEIRS, MINE), me, b"t", MINE)
    assert (found is not None) is refused
    assert found is None or (found.field, "move whole" in found.message) == ("page_size", True)
