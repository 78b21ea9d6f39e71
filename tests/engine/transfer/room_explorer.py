"""Breadth-first search over the real Sender and Receiver: fake ranks and wire, one room number, virtual time.

A state is kept as a memento, the contents of every mutable object, and put back in place, so that the
callbacks of armed deadlines keep pointing at their rooms. Time stands still but for the moment in which
a deadline fires, and any armed deadline may fire next: more orders than a clock allows, and no state
that differs from another by its age alone.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b

from engine.core.errors import RequestError
from engine.core.types import TERMINAL, FirstToken
from engine.transfer.deadlines import Deadlines
from tests.engine.transfer import room_promises
from tests.engine.transfer.fleet_model import ADDRESS, TOKENS, Decode, Fleet, Prefill

ROOM = 1
Memento = list[tuple[object, object]]
CONTAINERS = (dict, list, set, deque)


class Tickets:
    """Like itertools.count, with a state that can be put back."""

    def __init__(self) -> None:
        self.last = 0

    def __next__(self) -> int:
        self.last += 1
        return self.last


class Rooms(Fleet):
    """A fleet and what is left of the budgets: requests a side and life, and faults in all."""

    def __init__(self, uses: int, faults: int) -> None:
        self.uses, self.left, self.count = uses, faults, 0
        super().__init__(tp=1)
        self.fit()
        self.connect()

    def fit(self) -> None:
        if not isinstance(self.decode.receiver._tickets, Tickets):
            self.decode.receiver._tickets = Tickets()  # type: ignore[assignment]

    def next_id(self, side: str) -> str:
        self.count += 1
        return f"{side}{self.count}"


def capture(root: object) -> Memento:
    """The contents of every mutable object that can be reached from `root` without a closure."""
    seen: set[int] = set()
    out: Memento = []
    todo: list[object] = [root]
    while todo:
        thing = todo.pop()
        kept = isinstance(thing, CONTAINERS)
        if not kept and not _ours(type(thing)):
            continue
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            out.append((thing, thing.copy()))
            todo.extend(thing.values() if isinstance(thing, dict) else thing)
        else:
            out.append((thing, thing.__dict__.copy()))
            todo.extend(thing.__dict__.values())
    return out


_OURS: dict[type, bool] = {}


def _ours(kind: type) -> bool:
    if kind not in _OURS:
        _OURS[kind] = kind.__module__.startswith(("engine.", "tests.")) and "__dict__" in dir(kind)
    return _OURS[kind]


def restore(memento: Memento) -> None:
    for thing, content in memento:
        if isinstance(thing, list):
            thing[:] = content  # type: ignore[call-overload]
        elif isinstance(thing, deque):
            thing.clear()
            thing.extend(content)  # type: ignore[arg-type]
        else:
            here = thing if isinstance(thing, dict | set) else thing.__dict__
            here.clear()
            here.update(content)


def mark(fleet: Rooms) -> bytes:
    """The state without what only counts or measures."""
    p, d = fleet.prefill, fleet.decode
    rank = p.ranks[0]
    parts = (
        *(p.sender._rooms, p.sender._recent._rooms, p.sender._seq, p.up, list(p.deadlines._entries)),
        *(d.receiver._rooms, d.receiver._tickets.last, d.up, list(d.deadlines._entries)),  # type: ignore[attr-defined]
        *(rank.commands, rank.open, rank.held, rank.reports, rank.quiescing, sorted(rank.removed)),
        *(fleet.to_prefill, fleet.to_decode, fleet.lives, fleet.left, p.rids, d.rids, p.computed),
        *(sorted(d.granted), p.sink.pages.held, d.sink.pages.held, sorted(d.memory.items())),
    )
    return blake2b(repr(parts).encode(), digest_size=16).digest()


def fire(fleet: Rooms, deadlines: Deadlines, key: object) -> None:
    """Let one armed deadline fire as if its time had come, before all others."""
    now, fleet.clock.now = fleet.clock.now, deadlines._entries[key].at  # type: ignore[index]
    entry = deadlines._entries.pop(key)  # type: ignore[call-overload]
    deadlines._heap = [item for item in deadlines._heap if item[3] is not entry]
    heapq.heapify(deadlines._heap)
    entry.callback()
    fleet.clock.now = now


def steps(fleet: Rooms) -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything that may happen next, named."""
    yield from leaders(fleet)
    for name, side in (("prefill", fleet.prefill), ("decode", fleet.decode)):
        for key in list(side.deadlines._entries):
            yield f"{name} {key} fires", lambda side=side, key=key: fire(fleet, side.deadlines, key)
    rank = fleet.prefill.ranks[0]
    if rank.commands:
        yield f"rank does {type(rank.commands[0]).__name__}", lambda: rank.step(0)
    for key in rank.open:
        yield f"write {key} lands", lambda key=key: rank.finish(0, key, good=True)
    if rank.reports:
        yield f"report {type(rank.reports[0]).__name__}", lambda: fleet.report(0)
    if fleet.to_prefill and fleet.prefill.up:
        yield f"prefill hears {type(fleet.to_prefill[0]).__name__}", lambda: fleet.deliver(to_decode=False)
    if fleet.to_decode and fleet.decode.up:
        yield f"decode hears {type(fleet.to_decode[0]).__name__}", lambda: fleet.deliver(to_decode=True)
    if fleet.prefill.up != fleet.decode.key or fleet.decode.up != fleet.prefill.key:
        yield "relink", fleet.connect
    if fleet.left:
        yield from faults(fleet)


def leaders(fleet: Rooms) -> Iterator[tuple[str, Callable[[], object]]]:
    """What the two engines ask of their layers."""
    p, d = fleet.prefill, fleet.decode
    rid, entry = p.rids.get(ROOM, ""), p.sender._rooms.get(ROOM)
    if len(p.sink.pages.given) < fleet.uses and (entry is None or (entry.rid is None and not entry.ended)):
        yield "open", lambda: open_room(fleet, p)
    if rid in p.sink.pages.held and rid not in p.computed and rid not in p.sink.ends:
        pages = p.sink.pages.held[rid]
        if entry is not None and entry.complete == 0:
            yield "chunk", lambda: p.sender.chunk(ROOM, pages[:1], 1)
        yield "computed", lambda: computed(p, rid)
    if entry is not None and entry.rid and not entry.ended:
        yield "abort at prefill", lambda: p.sender.abort(ROOM, "client")
        if entry.complete and entry.dst is None:
            yield "prefill begins again", lambda: begin_again(p, rid)
    room = d.receiver._rooms.get(ROOM)
    if room is None and len(d.sink.ends) < fleet.uses:
        yield "request", lambda: request(fleet, d)
    if room is not None and room.stage not in TERMINAL:
        yield "abort at decode", lambda: d.receiver.abort(ROOM, "client")
        if not room.granted:
            yield "grant", lambda: grant(d)


def faults(fleet: Rooms) -> Iterator[tuple[str, Callable[[], object]]]:
    def one(step: Callable[[], object]) -> Callable[[], object]:
        def go() -> None:
            fleet.left -= 1
            step()
            fleet.fit()

        return go

    rank = fleet.prefill.ranks[0]
    for key in rank.open:
        yield f"write {key} breaks", one(lambda key=key: rank.finish(0, key, good=False))
    if fleet.prefill.up:
        yield "prefill loses the link", one(lambda: fleet.lose_prefill("lost"))
    else:
        yield "prefill gives the edge up", one(fleet.remove_decode)
    if fleet.decode.up:
        yield "decode loses the link", one(lambda: fleet.lose_decode("lost"))
    yield "prefill restarts", one(fleet.restart_prefill)
    yield "decode restarts", one(fleet.restart_decode)


def open_room(fleet: Rooms, p: Prefill) -> None:
    rid = p.rids[ROOM] = fleet.next_id("p")
    p.sink.pages.take(rid)
    p.sender.open(ROOM, rid)


def computed(p: Prefill, rid: str) -> None:
    p.computed.add(rid)
    p.sender.computed(ROOM, TOKENS, p.sink.pages.held[rid], FirstToken(token=1))


def begin_again(p: Prefill, rid: str) -> None:
    assert p.sender.give_up(ROOM), "nobody wants it, so it can be begun again"
    p.computed.discard(rid)
    p.sink.pages.give_back(rid)
    p.sink.pages.take(rid)


def request(fleet: Rooms, d: Decode) -> None:
    rid = fleet.next_id("d")
    try:
        d.receiver.request(ROOM, rid, ADDRESS)
    except RequestError:
        raise AssertionError(f"room {ROOM} is over and still in use") from None
    d.rids[ROOM] = rid


def grant(d: Decode) -> None:
    rid = d.rids[ROOM]
    d.granted.add(rid)
    pages = d.sink.pages.take(rid)
    assert pages and d.receiver.grant(ROOM, pages, TOKENS)


# The search starts from every point of these: a room that goes well, a number that is used again while the
# answers to its first use are still on their way, and one that both sides give up at once.
LIVES = (
    (
        *("open", "request", "grant", "prefill hears Want", "chunk", "rank does Post", "computed"),
        *("rank does Post", "write (1, 1) lands", "report Posted", "write (1, 2) lands", "report Posted"),
        *(*("decode hears",) * 5, "prefill hears Taken"),
    ),
    (
        *("open", "request", "abort at decode", "prefill hears Cancel", "open", "request", "grant"),
        *("prefill hears Want", "computed", "rank does Post", "abort at decode", "decode hears Quiesced"),
        *("prefill hears Cancel", "rank does Quiesce", "write (1, 1) lands", "report Posted", "report Quiet"),
    ),
    ("open", "request", "grant", "prefill hears Want", "abort at prefill", "abort at decode"),
)


def explore(
    limit: int, uses: int = 2, faults: int = 2, close_every: int = 8
) -> tuple[int, int, AssertionError | None, list[str]]:
    """(states, depth, what broke, the way to it): around every point of LIVES, breadth first.

    Each new state is checked; from every `close_every`-th all deadlines pass, the link comes back, and
    every room must end.
    """
    fleet = Rooms(uses, faults)
    todo: deque[tuple[Memento, int, tuple[str, ...]]] = deque()
    seen: set[bytes] = set()
    depth, way, start = 0, (), capture(fleet)
    try:
        for life in LIVES:
            restore(start)
            way = ()
            todo.append((start, 0, way))
            for name in life:
                way = (*way, name)
                next(step for label, step in steps(fleet) if label.startswith(name))()
                room_promises.check(fleet)
                todo.append((capture(fleet), 0, way))
                seen.add(mark(fleet))
        while todo and len(seen) < limit:
            memento, depth, before = todo.popleft()
            restore(memento)
            names = [name for name, _ in steps(fleet)]
            for index, name in enumerate(names):
                way = (*before, name)
                restore(memento)
                next(itertools.islice(steps(fleet), index, None))[1]()
                room_promises.check(fleet)
                key = mark(fleet)
                if key in seen:
                    continue
                seen.add(key)
                now = capture(fleet)
                todo.append((now, depth + 1, way))
                if len(seen) % close_every == 0:
                    room_promises.every_room_ends(fleet)
    except AssertionError as broken:
        return len(seen), depth, broken, list(way)
    return len(seen), depth, None, []
