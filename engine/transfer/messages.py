"""What leaders say to each other: tagged msgpack in length-prefixed frames, nothing executable.

The dialing side (decode) gets a Challenge, sends Hello, gets Welcome or Refuse; from then on every
frame is an Envelope. Room messages echo the `ticket` that decode drew for its Want, so a late answer
to an earlier use of a room number is told apart.
"""

from __future__ import annotations

import struct

import msgspec

from engine.core.types import FirstToken
from engine.transfer.commands import AgentInfo
from engine.transfer.integrity import PageSums

VERSION = 2
MAX_FRAME = 16 << 20
_HEAD = struct.Struct(">I")


class Challenge(msgspec.Struct, tag="challenge", frozen=True):
    nonce: bytes


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """Who a side is. `expects` is the incarnation it last knew of the other side, for its log.

    `mac` is an HMAC of everything else and of both nonces; see handshake.py.
    """

    instance: str
    role: str
    incarnation: str
    expects: str | None
    version: int
    fingerprint: dict[str, str | int]
    agents: list[AgentInfo]
    nonce: bytes
    mac: bytes = b""


class Hello(Introduction, tag="hello", frozen=True, kw_only=True):
    pass


class Welcome(Introduction, tag="welcome", frozen=True, kw_only=True):
    pass


class Refuse(msgspec.Struct, tag="refuse", frozen=True):
    """The link is not made. `field` names what differs, may be empty."""

    code: str
    field: str
    message: str


class Linked(msgspec.Struct, tag="linked", frozen=True):
    """The sender's ranks have added the receiver's agents and their paths are warm."""


class Ping(msgspec.Struct, tag="ping", frozen=True):
    pass


class Pong(msgspec.Struct, tag="pong", frozen=True):
    pass


class Want(msgspec.Struct, tag="want", frozen=True, kw_only=True):
    """Decode: write the KV of this room's `tokens` prompt tokens into `pages`, in logical order.

    With `sums` the Done must carry checksums of what was stored on prefill.
    """

    room: int
    ticket: int
    pages: list[int]
    tokens: int
    sums: bool = False


class Heard(msgspec.Struct, tag="heard", frozen=True, kw_only=True):
    """Prefill: the Want is here, and its prompt waits for its turn. A Chunk follows when that comes."""

    room: int
    ticket: int


class Chunk(msgspec.Struct, tag="chunk", frozen=True, kw_only=True):
    """Prefill: the first `pages_done` pages have arrived; `bytes` over all ranks so far.

    One with no pages says that prefill computes the prompt.
    """

    room: int
    ticket: int
    pages_done: int
    bytes: int


class Done(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    """Prefill: all pages have arrived, no write of this room is open."""

    room: int
    ticket: int
    tokens: int
    first: FirstToken
    sums: PageSums | None = None


class Taken(msgspec.Struct, tag="taken", frozen=True, kw_only=True):
    """Decode: the KV is mine now."""

    room: int
    ticket: int


class Failed(msgspec.Struct, tag="failed", frozen=True, kw_only=True):
    """Prefill: the room ended; Quiesced follows."""

    room: int
    ticket: int
    code: str
    message: str


class Cancel(msgspec.Struct, tag="cancel", frozen=True, kw_only=True):
    """Decode gave the room up (code "aborted" or a failure code); answered by Quiesced."""

    room: int
    ticket: int
    code: str
    message: str


class Quiesced(msgspec.Struct, tag="quiesced", frozen=True, kw_only=True):
    """Prefill: no write of this room can still land in decode's pages."""

    room: int
    ticket: int


RoomMessage = Want | Heard | Chunk | Done | Taken | Failed | Cancel | Quiesced
Body = Linked | Ping | Pong | RoomMessage


class Envelope(msgspec.Struct, tag="env", frozen=True):
    """`src` and `dst` are incarnations; a receiver drops what is not from and for the lives it knows."""

    src: str
    dst: str
    body: Body


Frame = Challenge | Hello | Welcome | Refuse | Envelope


class ProtocolError(Exception):
    """The bytes on a link are not ours, or not in this order."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """One frame with its length in front."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(body)} bytes is past the limit of {MAX_FRAME}")
    return _HEAD.pack(len(body)) + body


def decode(body: bytes) -> Frame:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"an unreadable frame: {error}") from None


class Splitter:
    """Cuts a byte stream into frames. `limit` bounds one frame, so that a stranger cannot fill memory."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames completed by `data`; ProtocolError on a frame that is too long or unreadable."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(self._buffer)
            if size > self.limit:
                raise ProtocolError(f"a frame of {size} bytes is past the limit of {self.limit}")
            if len(self._buffer) < _HEAD.size + size:
                break
            frames.append(decode(bytes(self._buffer[_HEAD.size : _HEAD.size + size])))
            del self._buffer[: _HEAD.size + size]
        return frames
