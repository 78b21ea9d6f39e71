"""The table of a room's stages: an end is final, whoever asks for another and however."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core.types import TERMINAL, FirstToken
from engine.transfer import messages as m
from engine.transfer.ports import Outcome
from engine.transfer.rooms import NEXT, Staged
from tests.engine.transfer.fleet_model import ADDRESS, TOKENS, Fleet


@pytest.mark.parametrize("end", sorted(TERMINAL))
@pytest.mark.parametrize("stage", sorted(NEXT))
def test_an_end_is_final(end: str, stage: str) -> None:
    room = Staged(1, "r", 0.0, stage=end, stage_at=5.0)
    assert not room.move(stage, 9.0)
    assert (room.stage, room.stage_at) == (end, 5.0)


@pytest.mark.parametrize("stage", sorted(NEXT.keys() - TERMINAL))
def test_what_has_not_ended_may_end_and_goes_nowhere_else_than_the_table_says(stage: str) -> None:
    for to in NEXT:
        room = Staged(1, "r", 0.0, stage=stage, stage_at=5.0)
        assert room.move(to, 9.0) == (to in NEXT[stage])
        assert (room.stage, room.stage_at) == ((to, 9.0) if to in NEXT[stage] else (stage, 5.0))
    assert NEXT[stage] & TERMINAL == (TERMINAL if stage != "done" else frozenset())


def prefill_room(fleet: Fleet) -> Callable[[Outcome], bool]:
    pages = fleet.prefill.sink.pages.take("p1")
    assert pages is not None
    fleet.prefill.sender.open(1, "p1")
    fleet.prefill.sender.computed(1, TOKENS, pages, FirstToken(token=1))
    sender, entry = fleet.prefill.sender, fleet.prefill.sender._rooms[1]

    def end(outcome: Outcome) -> bool:
        with sender._box:
            return sender._end(entry, outcome)

    return end


def decode_room(fleet: Fleet) -> Callable[[Outcome], bool]:
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    receiver, entry = fleet.decode.receiver, fleet.decode.receiver._rooms[1]

    def end(outcome: Outcome) -> bool:
        with receiver._box:
            return receiver._end(entry, outcome)

    return end


@pytest.mark.parametrize("make", [prefill_room, decode_room])
@pytest.mark.parametrize("first", sorted(TERMINAL))
@pytest.mark.parametrize("second", sorted(TERMINAL))
def test_a_second_end_is_counted_as_late_and_changes_nothing(
    make: Callable[[Fleet], Callable[[Outcome], bool]], first: str, second: str
) -> None:
    """Of a room that somebody still has in hand while it ends: nobody is told of another end."""
    fleet = Fleet()
    fleet.connect()
    end = make(fleet)
    assert end(_outcome(first))
    side, sink, rid = (
        (fleet.prefill.sender, fleet.prefill.sink, "p1")
        if make is prefill_room
        else (fleet.decode.receiver, fleet.decode.sink, "d1")
    )
    told = len(fleet.to_prefill), len(fleet.to_decode)
    assert not end(_outcome(second))
    assert sink.ends[rid].kind == first and side.counters.late_completions == 1
    assert (len(fleet.to_prefill), len(fleet.to_decode)) == told
    counted = side.counters.transfers_ok, side.counters.transfers_failed
    assert counted == (int(first == "done"), int(first == "failed"))


def _outcome(kind: str) -> Outcome:
    return Outcome(kind, "" if kind == "done" else "engine_failed", "x")  # type: ignore[arg-type]


def test_an_ended_room_that_is_not_quiet_takes_nothing_more_from_its_leader() -> None:
    """Its writes are still open: nothing is posted, no watchdog starts, nobody hears of it again."""
    fleet = Fleet()
    fleet.connect()
    prefill_room(fleet)
    grant(fleet)
    fleet.deliver(to_decode=False)
    sender, pages = fleet.prefill.sender, fleet.prefill.sink.pages.held["p1"]
    assert sender.fail(1, "engine_failed", "x") and "p1" not in fleet.prefill.sink.quiets
    commands, armed = len(fleet.prefill.ranks[0].commands), len(fleet.prefill.deadlines._entries)
    assert not sender.chunk(1, pages, 1)
    assert not sender.computed(1, TOKENS, pages, FirstToken(token=1))
    assert not sender.give_up(1)
    assert not sender.abort(1, "client") and sender.counters.late_completions == 0
    assert len(fleet.prefill.ranks[0].commands) == commands
    assert len(fleet.prefill.deadlines._entries) == armed


def test_a_cancel_that_is_repeated_is_heard_once(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet()
    fleet.connect()
    prefill_room(fleet)
    grant(fleet)
    fleet.deliver(to_decode=False)
    cancel = m.Cancel(room=1, ticket=1, code="prealloc_timeout", message="x")
    for _ in range(2):
        fleet.prefill.sender.on_message(fleet.decode.key, cancel)
    assert caplog.text.count("ended_by_peer") == 1 and fleet.prefill.sender.counters.late_completions == 0


@pytest.mark.parametrize("ended", [False, True])
def test_words_out_of_place_change_nothing_on_decode(ended: bool) -> None:
    """Quiesced frees no page of a room that goes on; a Chunk of one that has ended is late."""
    fleet = Fleet()
    fleet.connect()
    receiver, sink = fleet.decode.receiver, fleet.decode.sink
    receiver.request(1, "d1", ADDRESS)
    pages = grant(fleet, asked=True)
    if ended:
        assert receiver.fail(1, "engine_failed", "x")
        receiver.on_message(fleet.prefill.key, m.Chunk(room=1, ticket=1, pages_done=2, bytes=64))
    else:
        receiver.on_message(fleet.prefill.key, m.Quiesced(room=1, ticket=1))
    assert "d1" not in sink.quiets and sink.pages.held["d1"] == pages
    assert receiver.counters.late_completions == 1 and receiver.counters.transfer_bytes == 0


def grant(fleet: Fleet, asked: bool = False) -> list[int]:
    """Decode's leg has pages and its Want is on the way."""
    if not asked:
        fleet.decode.receiver.request(1, "d1", ADDRESS)
    pages = fleet.decode.sink.pages.take("d1")
    assert pages is not None and fleet.decode.receiver.grant(1, pages, TOKENS)
    return pages
