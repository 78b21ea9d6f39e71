"""What a leader tells the transfer thread of each rank, and what a rank reports back.

Both travel between processes of one group as tagged msgpack; a rank never decides, it executes and
reports by room id. Every rank gets every command, in one order.
"""

from __future__ import annotations

import msgspec

Packed = bytes  # little-endian uint64


class AddPeer(msgspec.Struct, tag="add_peer", frozen=True, kw_only=True):
    """Load a peer's agents, prepare descriptor lists and warm the edge; answered by PeerAdded or PeerError.

    `metadata[r]` is the NIXL metadata of peer rank r; `bases[r]` its pool's address, `pages` its number
    of pages, `heads[r]` its half-open KV head range, `devices[r]` its device id (0 on CPU); its pages hold
    `page_size` tokens (0: as many as here). This engine has `writers` ranks. `write` is
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
    page_size: int = 0
    writers: int = 1
    memory: str = "DRAM"
    write: bool = True
    epoch: int = 0
    deadline: float = 15.0


class RemovePeer(msgspec.Struct, tag="remove_peer", frozen=True):
    """Fence a peer: release its handles, remove its agents. Reported as PeerRemoved."""

    peer: str


class Post(msgspec.Struct, tag="post", frozen=True, kw_only=True):
    """Write pages of a room: `src[i]` of this rank's pool to page `dst[i]` of the peer, its heads only.

    Both count in units of the smaller page: page p holds units p * n to p * n + n - 1 of the n it is made of.

    `sums` are the pages whose checksums come back with Posted, the room's logical pages from `first` on
    of a prompt of `tokens` tokens; none when decode did not ask.

    Drills, decided by the leader: with `stall` the post is held and never made; `delay` seconds pass
    before it is made; with `fail` it counts as failed once its first slice is out, whose write stays open.
    """

    room: int
    seq: int
    peer: str
    src: list[int]
    dst: list[int]
    sums: list[int] = []
    first: int = 0
    tokens: int = 0
    stall: bool = False
    fail: bool = False
    delay: float = 0.0


class Quiesce(msgspec.Struct, tag="quiesce", frozen=True):
    """Post nothing more for this room and say Quiet once no write of it can still land."""

    room: int


class Check(msgspec.Struct, tag="check", frozen=True, kw_only=True):
    """Look at the pages of a room that were written here, in logical order; answered by Checked.

    With `sums` they are summed, with `index` their index-K is verified.

    Drill, decided by the leader: one bit of local page `flip` is inverted first.
    """

    room: int
    ticket: int
    pages: list[int]
    tokens: int
    sums: bool = True
    index: bool = False
    flip: int | None = None


Command = AddPeer | RemovePeer | Post | Quiesce | Check


class PeerAdded(msgspec.Struct, tag="peer_added", frozen=True):
    rank: int
    peer: str
    seconds: float
    epoch: int = 0


class PeerRemoved(msgspec.Struct, tag="peer_removed", frozen=True):
    rank: int
    peer: str


class PeerError(msgspec.Struct, tag="peer_error", frozen=True):
    """`late`: AddPeer's deadline was what ended it."""

    rank: int
    peer: str
    error: str
    epoch: int = 0
    late: bool = False


class Posted(msgspec.Struct, tag="posted", frozen=True, kw_only=True):
    """A Post of this rank is complete at the target (or had no heads for this rank: bytes 0).

    `sums` [pages, groups] are those asked for, over this rank's heads and from logical page `first` on.
    """

    rank: int
    room: int
    seq: int
    bytes: int
    seconds: float
    first: int = 0
    sums: Packed = b""


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


class Checked(msgspec.Struct, tag="checked", frozen=True, kw_only=True):
    """Answer to Check: this rank's sums of its pages, as in Posted, and which index-K is wrong, as words."""

    rank: int
    room: int
    ticket: int
    sums: Packed
    wrong: str = ""


class Beat(msgspec.Struct, tag="beat", frozen=True):
    """The transfer thread of a rank turned; sent about once a second."""

    rank: int
    open_posts: int


Report = PeerAdded | PeerRemoved | PeerError | Posted | PostError | Quiet | Checked | Beat


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
