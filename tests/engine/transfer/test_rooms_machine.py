"""Any order of chunks, losses, restarts, aborts and deadlines: pages are never both free and written to."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.core.errors import RequestError
from engine.core.types import FirstToken
from tests.engine.transfer import room_promises
from tests.engine.transfer.fleet_model import ADDRESS, PAGES_EACH, TOKENS, Fleet
from tests.examples import examples

ROOMS = st.integers(1, 2)
RANKS = st.integers(0, 1)


class Rooms(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.fleet.connect()
        self.count = 0

    def next_id(self) -> str:
        self.count += 1
        return f"r{self.count}"

    # What the leaders do.

    @rule(room=ROOMS)
    def open(self, room: int) -> None:
        prefill, rid = self.fleet.prefill, self.next_id()
        pages = prefill.sink.pages.take(rid)
        if pages is None:
            return
        try:
            prefill.sender.open(room, rid)
        except RequestError:
            prefill.sink.pages.give_back(rid)
        else:
            prefill.rids[room] = rid

    @rule(room=ROOMS, complete=st.integers(1, PAGES_EACH))
    def chunk(self, room: int, complete: int) -> None:
        prefill = self.fleet.prefill
        rid = prefill.rids.get(room, "")
        if rid in prefill.sink.pages.held and rid not in prefill.computed:
            prefill.sender.chunk(room, prefill.sink.pages.held[rid][:complete], complete)

    @rule(room=ROOMS)
    def computed(self, room: int) -> None:
        prefill = self.fleet.prefill
        rid = prefill.rids.get(room, "")
        if rid in prefill.sink.pages.held and rid not in prefill.computed:
            prefill.computed.add(rid)
            prefill.sender.computed(room, TOKENS, prefill.sink.pages.held[rid], FirstToken(token=1))

    @rule(room=ROOMS)
    def request(self, room: int) -> None:
        decode, rid = self.fleet.decode, self.next_id()
        try:
            decode.receiver.request(room, rid, ADDRESS)
        except RequestError:
            return
        decode.rids[room] = rid

    @rule(room=ROOMS)
    def grant(self, room: int) -> None:
        decode = self.fleet.decode
        rid = decode.rids.get(room)
        if rid is None or rid in decode.sink.ends or rid in decode.granted:
            return
        pages = decode.sink.pages.take(rid)
        if pages is not None:
            decode.granted.add(rid)
            assert decode.receiver.grant(room, pages, TOKENS)

    @rule(room=ROOMS, prefill=st.booleans(), abort=st.booleans(), heard=st.booleans())
    def give_up(self, room: int, prefill: bool, abort: bool, heard: bool) -> None:
        rooms = self.fleet.prefill.sender if prefill else self.fleet.decode.receiver
        rids = self.fleet.prefill.rids if prefill else self.fleet.decode.rids
        sink = self.fleet.prefill.sink if prefill else self.fleet.decode.sink
        was_over = rids.get(room) in sink.ends
        took = rooms.abort(room, "client") if abort else rooms.fail(room, "engine_failed", "x")
        assert not (was_over and took), "a terminal state changed"
        if heard:
            self.words_and_commands_arrive()

    @rule(room=ROOMS, writing=st.booleans())
    def begin(self, room: int, writing: bool) -> None:
        """A whole request on both sides, up to Want or to open writes."""
        self.request(room=room)
        self.grant(room=room)
        self.open(room=room)
        self.computed(room=room)
        if writing:
            self.words_and_commands_arrive()

    # What the ranks and the wire do.

    @rule()
    def words_and_commands_arrive(self) -> None:
        """Everything but the writes themselves goes on."""
        fleet = self.fleet
        while (fleet.to_prefill and fleet.prefill.up) or (fleet.to_decode and fleet.decode.up):
            fleet.deliver(to_decode=bool(fleet.to_decode and fleet.decode.up))
        for index, rank in enumerate(fleet.prefill.ranks):
            while rank.commands:
                rank.step(index)
            while rank.reports:
                fleet.report(index)

    @rule(index=RANKS)
    def rank_steps(self, index: int) -> None:
        if self.fleet.prefill.ranks[index].commands:
            self.fleet.prefill.ranks[index].step(index)

    @rule(index=RANKS, good=st.sampled_from([True, True, True, False]), data=st.data())
    def write_ends(self, index: int, good: bool, data: st.DataObject) -> None:
        rank = self.fleet.prefill.ranks[index]
        if rank.open:
            rank.finish(index, data.draw(st.sampled_from(sorted(rank.open))), good)

    @rule(index=RANKS)
    def one_rank_breaks(self, index: int) -> None:
        rank = self.fleet.prefill.ranks[index]
        if rank.open:
            rank.finish(index, min(rank.open), good=False)
            while rank.reports:
                self.fleet.report(index)

    @rule(index=RANKS)
    def report(self, index: int) -> None:
        self.fleet.report(index)

    @rule(to_decode=st.booleans())
    def deliver(self, to_decode: bool) -> None:
        self.fleet.deliver(to_decode)

    @rule()
    def all_is_well_for_a_while(self) -> None:
        self.fleet.drain()

    @precondition(lambda self: self.count % 2 == 0)
    @rule(prefill=st.booleans())
    def lose(self, prefill: bool) -> None:
        if prefill:
            self.fleet.lose_prefill("lost")
            views, rids = self.fleet.prefill.sender.snapshot(), self.fleet.prefill.sink.ends
            assert all(v.rid in rids for v in views if v.peer_incarnation), "a room outlived its peer"
        else:
            self.fleet.lose_decode("lost")
            views, rids = self.fleet.decode.receiver.snapshot(), self.fleet.decode.sink.ends
            assert all(v.rid in rids for v in views if v.peer_incarnation), "a room outlived its peer"

    @precondition(lambda self: self.fleet.prefill.up is None)
    @rule()
    def give_edge_up(self) -> None:
        self.fleet.remove_decode()

    @rule()
    def reconnect(self) -> None:
        self.fleet.connect()

    @precondition(lambda self: self.count % 3 == 0)
    @rule(prefill=st.booleans())
    def restart(self, prefill: bool) -> None:
        if prefill:
            self.fleet.restart_prefill()
        else:
            self.fleet.restart_decode()

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 90.0]))
    def advance(self, seconds: float) -> None:
        self.fleet.advance(seconds)

    @rule(name=st.sampled_from(["lose-want", "lose-done", "stall-transfer"]))
    def fault(self, name: str) -> None:
        self.fleet.faults.arm(name, count=1)

    # What must hold.

    @invariant()
    def promises(self) -> None:
        room_promises.check(self.fleet)

    def teardown(self) -> None:
        room_promises.every_room_ends(self.fleet)


TestRooms = Rooms.TestCase
TestRooms.settings = settings(
    max_examples=examples(300), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRooms = pytest.mark.timeout(240)(TestRooms)
