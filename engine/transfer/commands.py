"""What a leader tells the transfer thread of each rank, and what a rank reports back.

Both travel between processes of one group as tagged msgpack; a rank never decides, it executes and
reports by room id. Every rank gets every command, in one order.
"""

from __future__ import annotations

import msgspec


class AddPeer(msgspec.Struct, tag="add_peer", frozen=True, kw_only=True):
    """Load a peer's agents, prepare descriptor lists and warm the edge; answered by PeerAdded or PeerError.

    `metadata[r]` is the NIXL metadata of peer rank r; `bases[r]` its pool's address, `pages` its number
    of pages, `heads[r]` its half-open KV head range, `devices[r]` its device id (0 on CPU). `write` is
    true on the side that writes (prefill); the other side only lets what was under way settle. `epoch`
    comes back in the answer; `deadline` is the seconds the warm write may take.
    """

    peer: str
    tp: int
    metadata: list[bytes]
    bases: list[int]
    devices: list[int]
    heads: list[tuple[int, int]]
    pages: int
    memory: str = "DRAM"
    write: bool = True
    epoch: int = 0
    deadline: float = 15.0


class RemovePeer(msgspec.Struct, tag="remove_peer", frozen=True):
    """Fence a peer: release its handles, remove its agents. Reported as PeerRemoved."""

    peer: str


class Post(msgspec.Struct, tag="post", frozen=True, kw_only=True):
    """Write pages of a room: `src[i]` of this rank's pool to page `dst[i]` of the peer, its heads only.

    Drills, decided by the leader: with `stall` the post is held and never made; `delay` seconds pass
    before it is made.
    """

    room: int
    seq: int
    peer: str
    src: list[int]
    dst: list[int]
    stall: bool = False
    delay: float = 0.0


class Quiesce(msgspec.Struct, tag="quiesce", frozen=True):
    """Post nothing more for this room and say Quiet once no write of it can still land."""

    room: int


Command = AddPeer | RemovePeer | Post | Quiesce


class PeerAdded(msgspec.Struct, tag="peer_added", frozen=True):
    rank: int
    peer: str
    seconds: float
    epoch: int = 0


class PeerRemoved(msgspec.Struct, tag="peer_removed", frozen=True):
    rank: int
    peer: str


class PeerError(msgspec.Struct, tag="peer_error", frozen=True):
    rank: int
    peer: str
    error: str
    epoch: int = 0


class Posted(msgspec.Struct, tag="posted", frozen=True, kw_only=True):
    """A Post of this rank is complete at the target (or had no heads for this rank: bytes 0)."""

    rank: int
    room: int
    seq: int
    bytes: int
    seconds: float


class PostError(msgspec.Struct, tag="post_error", frozen=True, kw_only=True):
    """A Post failed; writes of it may still be open until Quiet."""

    rank: int
    room: int
    seq: int
    error: str


class Quiet(msgspec.Struct, tag="quiet", frozen=True):
    """No write of this room from this rank can still land."""

    rank: int
    room: int


class Beat(msgspec.Struct, tag="beat", frozen=True):
    """The transfer thread of a rank turned; sent about once a second."""

    rank: int
    open_posts: int


Report = PeerAdded | PeerRemoved | PeerError | Posted | PostError | Quiet | Beat


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank tells its leader at start, for Hello: how a peer can write into this rank's pool.

    The last page of the pool (index pages - 1) is scratch: warm-up writes land there, no allocator
    ever hands it out.
    """

    rank: int
    metadata: bytes
    base: int
    device: int
    heads: tuple[int, int]
    pages: int
    memory: str = "DRAM"
