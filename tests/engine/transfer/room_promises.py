"""What the room protocol promises, checked on an in-memory fleet of real Senders and Receivers.

Named as in room_model.py: one owner, sticky ends, same end, handed over whole, conservation; and every
room ends. Sink's own checks (an end once, quiet once and after it) belong to them.
"""

from __future__ import annotations

from engine.core.types import TERMINAL
from engine.transfer import commands as c
from tests.engine.transfer.fleet_model import PAGES, Decode, Fleet, Prefill


def check(fleet: Fleet) -> None:
    """AssertionError naming the promise that does not hold now."""
    handed_over_whole(fleet)
    one_owner(fleet)
    for side in (fleet.prefill, fleet.decode):
        sticky_ends(side)
        conservation(side)


def one_owner(fleet: Fleet) -> None:
    """No page is free while a write from it or to it is open or on its way."""
    prefill, decode = fleet.prefill, fleet.decode
    for rank in prefill.ranks:
        posts = [p for p in rank.commands if isinstance(p, c.Post)]
        for post in (*rank.open.values(), *rank.held.values(), *posts):
            assert not set(post.src) & prefill.sink.pages.free, f"one owner: {post} reads free pages"
            if post.peer == str(decode.key):
                assert not set(post.dst) & decode.sink.pages.free, f"one owner: {post} writes free pages"
    for sink in (prefill.sink, decode.sink):
        pages = [*sink.pages.free, *(p for held in sink.pages.held.values() for p in held)]
        assert sorted(pages) == list(range(PAGES - 1)), "one owner: a page is in two places or in none"


def _rooms(side: Prefill | Decode) -> list[tuple[str | None, str]]:
    state = side.sender if isinstance(side, Prefill) else side.receiver
    return [(entry.rid, entry.stage) for entry in state._rooms.values()]


def sticky_ends(side: Prefill | Decode) -> None:
    """A room that its engine was told the end of stays in that very stage."""
    for rid, stage in _rooms(side):
        end = side.sink.ends.get(rid or "")
        assert rid is None or (end.kind if end else None) == (stage if stage in TERMINAL else None), (
            f"sticky ends: {rid} is {stage}, its engine was told {end}"
        )


def conservation(side: Prefill | Decode) -> None:
    """Every accepted request is with the layer or over and quiet, and keeps its pages until then."""
    here = {rid for rid, _ in _rooms(side)}
    for rid in side.rids.values():
        assert (rid in here) != (rid in side.sink.quiets), f"conservation: {rid} is nowhere or twice"
    kept = set(side.sink.pages.held) & side.sink.quiets
    assert not kept, f"conservation: {kept} are quiet and hold pages"


def handed_over_whole(fleet: Fleet) -> None:
    """What decode took was written page by page from one request's pages, in order; and prefill does not
    believe in a hand-over that decode does not know of."""
    decode, prefill = fleet.decode, fleet.prefill
    sources = [[(prefill.key, page) for page in pages] for pages in prefill.sink.pages.given.values()]
    for rid in decode.sink.readies - decode.checked:
        decode.checked.add(rid)
        got = [decode.memory.get(page) for page in decode.sink.pages.given[rid]]
        assert got in sources, f"handed over whole: {rid} has {got}"
    if fleet.lives == 0:
        dones = sum(end.kind == "done" for end in prefill.sink.ends.values())
        assert dones <= len(decode.sink.readies), "same end: prefill is done with what decode did not take"


def every_room_ends(fleet: Fleet) -> None:
    """All deadlines pass, the two are linked again and everything goes on: nothing is left anywhere."""
    for room, rid in fleet.prefill.rids.items():
        if rid not in fleet.prefill.computed and rid not in fleet.prefill.sink.ends:
            fleet.prefill.sender.abort(room, "stop")
    for _ in range(4):
        fleet.advance(350.0)
    for side in (fleet.prefill, fleet.decode):
        late = set(side.rids.values()) - set(side.sink.ends)
        assert not late, f"every room ends: {late} outlived their deadlines"
    fleet.connect()
    fleet.drain()
    for side in (fleet.prefill, fleet.decode):
        assert set(side.sink.ends) == side.sink.quiets, "every room ends: one never became quiet"
    assert not fleet.prefill.sender.snapshot() and not fleet.decode.receiver.snapshot()
    check(fleet)
