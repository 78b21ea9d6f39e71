"""Sender and Receiver on a virtual clock: watchdogs at their value, odd Wants, failures both ways."""

from __future__ import annotations

import pytest

from engine.core.errors import RequestError
from engine.core.types import FirstToken
from engine.transfer import messages as m
from tests.engine.transfer.fleet_model import ADDRESS, PAGES, TOKENS, Fleet


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.connect()
    return made


def begin(fleet: Fleet, room: int = 1, computed: bool = True) -> None:
    pages = fleet.prefill.sink.pages.take(f"p{room}")
    assert pages is not None
    fleet.prefill.sender.open(room, f"p{room}")
    want(fleet, room)
    if computed:
        fleet.prefill.sender.computed(room, TOKENS, pages, FirstToken(token=1))


def want(fleet: Fleet, room: int = 1) -> None:
    fleet.decode.receiver.request(room, f"d{room}", ADDRESS)
    pages = fleet.decode.sink.pages.take(f"d{room}")
    assert pages is not None and fleet.decode.receiver.grant(room, pages, TOKENS)


def code(fleet: Fleet, rid: str) -> str:
    """How a leg ended; an empty string while it has not."""
    sink = fleet.prefill.sink if rid[0] == "p" else fleet.decode.sink
    outcome = sink.ends.get(rid)
    return (outcome.code or outcome.kind) if outcome else ""


@pytest.mark.parametrize("fault", ["lose-done", "lose-want"])
def test_a_lost_message_ends_at_decodes_deadline(fleet: Fleet, fault: str) -> None:
    fleet.faults.arm(fault, count=1)
    begin(fleet)
    fleet.drain()
    (view,) = fleet.prefill.sender.snapshot()
    assert view.waiting_on == ("taken" if fault == "lose-done" else "want")
    fleet.advance(100)
    fleet.drain()
    assert code(fleet, "d1") == "kv_transfer_timeout" and "d1" in fleet.decode.sink.quiets
    assert code(fleet, "p1") == "kv_transfer_timeout" and "p1" in fleet.prefill.sink.quiets


def test_a_live_change_moves_the_watchdogs_that_run(fleet: Fleet) -> None:
    fleet.faults.arm("stall-transfer")
    begin(fleet, 1)
    begin(fleet, 2)
    fleet.drain()
    fleet.advance(10)
    fleet.settings.set("transfer", 20, 0)
    fleet.settings.set("inflight", 30, 0)
    fleet.decode.receiver.timeouts_changed()
    fleet.prefill.sender.timeouts_changed()
    fleet.advance(9.9)
    assert code(fleet, "d1") == ""
    fleet.advance(0.1)
    assert code(fleet, "d1") == code(fleet, "d2") == "kv_transfer_timeout"
    fleet.advance(9.9)
    assert code(fleet, "p1") == "", "decode's word is still on its way"
    fleet.advance(0.1)
    assert code(fleet, "p1") == code(fleet, "p2") == "kv_transfer_timeout"


def test_a_want_before_open_is_kept(fleet: Fleet) -> None:
    want(fleet)
    fleet.drain()
    fleet.advance(50)
    begin_late = fleet.prefill.sink.pages.take("p1")
    assert begin_late is not None
    fleet.prefill.sender.open(1, "p1")
    fleet.prefill.sender.computed(1, TOKENS, begin_late, FirstToken(token=1))
    fleet.drain()
    assert code(fleet, "p1") == code(fleet, "d1") == "done"


def test_a_want_for_a_request_that_never_comes_has_a_deadline(fleet: Fleet) -> None:
    fleet.settings.set("transfer", 1000, 0)
    want(fleet)
    fleet.drain()
    fleet.advance(299)
    assert code(fleet, "d1") == ""
    fleet.advance(1)
    fleet.drain()
    assert code(fleet, "d1") == "queue_timeout" and "d1" in fleet.decode.sink.quiets
    assert fleet.prefill.deadlines.fired() == {"queue": 1}
    fleet.prefill.sender.open(1, "p1")
    assert code(fleet, "p1") == "queue_timeout", "the request that comes too late is told at once"


def test_a_cancel_before_open_dooms_the_request(fleet: Fleet) -> None:
    want(fleet)
    fleet.decode.receiver.abort(1, "client")
    fleet.drain()
    assert "d1" in fleet.decode.sink.quiets
    fleet.prefill.sender.open(1, "p1")
    assert fleet.prefill.sink.ends["p1"].kind == "aborted" and "p1" in fleet.prefill.sink.quiets


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_an_abort_of_one_leg_is_an_abort_of_the_other(fleet: Fleet, side: str) -> None:
    begin(fleet, computed=False)
    fleet.drain()
    rooms = fleet.prefill.sender if side == "prefill" else fleet.decode.receiver
    assert rooms.abort(1, "admin")
    fleet.drain()
    assert (fleet.prefill.sink.ends["p1"].kind, fleet.decode.sink.ends["d1"].kind) == ("aborted",) * 2


def test_a_want_for_an_ended_room_is_answered_at_once(fleet: Fleet) -> None:
    fleet.prefill.sender.open(1, "p1")
    fleet.prefill.sender.abort(1, "client")
    want(fleet)
    fleet.drain()
    assert code(fleet, "d1") == "aborted" and "d1" in fleet.decode.sink.quiets


@pytest.mark.parametrize("pages", [[0, 1, PAGES - 1], [0, 1, PAGES], [0, 1, -1], [0, 0, 1]])
def test_pages_outside_the_pool_are_never_written(fleet: Fleet, pages: list[int]) -> None:
    begin(fleet)
    fleet.to_prefill.clear()
    fleet.to_prefill.append(m.Want(room=1, ticket=1, pages=pages, tokens=TOKENS))
    fleet.drain()
    assert code(fleet, "d1") == "kv_transfer_failed"
    assert not any(rank.open or rank.commands for rank in fleet.prefill.ranks)


def test_token_counts_must_agree(fleet: Fleet) -> None:
    begin(fleet)
    fleet.to_prefill.clear()
    fleet.to_prefill.append(m.Want(room=1, ticket=1, pages=[0, 1, 2], tokens=TOKENS - 1))
    fleet.drain()
    assert code(fleet, "p1") == code(fleet, "d1") == "kv_transfer_failed"


@pytest.mark.parametrize("side", ["p", "d"])
@pytest.mark.parametrize("how", ["abort", "fail"])
def test_either_sides_failure_ends_the_other(fleet: Fleet, side: str, how: str) -> None:
    fleet.faults.arm("stall-transfer")
    begin(fleet)
    fleet.drain()
    rooms = fleet.prefill.sender if side == "p" else fleet.decode.receiver
    assert rooms.abort(1, "client") if how == "abort" else rooms.fail(1, "engine_failed", "x")
    fleet.drain()
    assert code(fleet, "p1") == code(fleet, "d1") == ("aborted" if how == "abort" else "engine_failed")
    assert "p1" in fleet.prefill.sink.quiets and "d1" in fleet.decode.sink.quiets


def test_one_failing_rank_fails_the_room_and_quiet_waits_for_the_others(fleet: Fleet) -> None:
    begin(fleet)
    fleet.deliver(to_decode=False)
    for index, rank in enumerate(fleet.prefill.ranks):
        rank.step(index)
    fleet.prefill.ranks[0].finish(0, next(iter(fleet.prefill.ranks[0].open)), good=False)
    fleet.report(0)
    assert code(fleet, "p1") == "kv_transfer_failed" and "p1" not in fleet.prefill.sink.quiets
    for index, rank in enumerate(fleet.prefill.ranks):
        rank.step(index)
    fleet.report(0)
    fleet.deliver(to_decode=True)  # that the prompt is computed
    fleet.deliver(to_decode=True)
    assert code(fleet, "d1") == "kv_transfer_failed", "decode is told before the pages are quiet"
    assert "p1" not in fleet.prefill.sink.quiets and "d1" not in fleet.decode.sink.quiets
    fleet.drain()
    assert "p1" in fleet.prefill.sink.quiets and "d1" in fleet.decode.sink.quiets
    assert fleet.prefill.sender.counters.late_completions == 1, "the good rank's late Posted is counted"


def test_a_silent_prefill_keeps_decodes_pages(fleet: Fleet) -> None:
    begin(fleet)
    fleet.lose_decode("silent")
    fleet.advance(10_000)
    assert code(fleet, "d1") == "peer_lost" and "d1" not in fleet.decode.sink.quiets
    fleet.connect()
    fleet.drain()
    assert "d1" in fleet.decode.sink.quiets, "the same life answered the repeated Cancel"


def test_rooms_in_use_are_refused(fleet: Fleet) -> None:
    begin(fleet)
    with pytest.raises(RequestError, match="in use"):
        fleet.prefill.sender.open(1, "other")
    with pytest.raises(RequestError, match="in use"):
        fleet.decode.receiver.request(1, "other", ADDRESS)


def test_terminal_states_do_not_change(fleet: Fleet) -> None:
    begin(fleet)
    fleet.drain()
    assert code(fleet, "p1") == code(fleet, "d1") == "done"
    for rooms in (fleet.prefill.sender, fleet.decode.receiver):
        assert not rooms.abort(1, "client") and not rooms.fail(1, "engine_failed", "x")
    assert not fleet.prefill.sender.chunk(1, [0], 1)
    assert not fleet.decode.receiver.grant(1, [0], 1)
    fleet.prefill.sender.on_message(fleet.decode.key, m.Taken(room=1, ticket=1))
    assert fleet.prefill.sender.counters.late_completions == 1


def test_a_chunk_after_the_last_one_takes_nothing_back(fleet: Fleet) -> None:
    """Else the hand-over would follow with pages that were never written."""
    pages = fleet.prefill.sink.pages.take("p1")
    assert pages is not None
    fleet.prefill.sender.open(1, "p1")
    fleet.prefill.sender.computed(1, TOKENS, pages, FirstToken(token=1))
    assert not fleet.prefill.sender.chunk(1, pages[:1], 1)
    want(fleet)
    fleet.drain()
    assert len(fleet.decode.memory) == len(pages) and code(fleet, "d1") == "done"


def test_a_late_word_about_an_earlier_use_of_a_room_is_dropped(fleet: Fleet) -> None:
    """Room numbers may come again: what answers the first use must not free the pages of the second."""
    fleet.faults.arm("stall-transfer")
    begin(fleet)
    fleet.drain()
    fleet.decode.receiver.abort(1, "client")
    fleet.drain()
    assert "d1" in fleet.decode.sink.quiets
    pages = fleet.decode.sink.pages.take("again")
    assert pages is not None
    fleet.decode.receiver.request(1, "again", ADDRESS)
    fleet.decode.receiver.grant(1, pages, TOKENS)
    fleet.decode.receiver.fail(1, "engine_failed", "x")
    late = m.Quiesced(room=1, ticket=1)
    fleet.decode.receiver.on_message(fleet.prefill.key, late)
    assert "again" not in fleet.decode.sink.quiets
    fleet.drain()
    assert "again" in fleet.decode.sink.quiets


def test_a_cancel_of_an_earlier_use_does_not_end_the_room(fleet: Fleet) -> None:
    fleet.faults.arm("stall-transfer")
    begin(fleet)
    fleet.drain()
    fleet.prefill.sender.on_message(
        fleet.decode.key, m.Cancel(room=1, ticket=99, code="aborted", message="an old one")
    )
    assert code(fleet, "p1") == ""
    assert fleet.to_decode.pop() == m.Quiesced(room=1, ticket=99)


def test_a_second_decode_cannot_take_a_room_over(fleet: Fleet) -> None:
    fleet.faults.arm("stall-transfer")
    begin(fleet)
    fleet.drain()
    fleet.prefill.sender.on_message(
        fleet.decode.key, m.Want(room=1, ticket=99, pages=[5, 6, 7], tokens=TOKENS)
    )
    assert code(fleet, "p1") == ""
    assert [type(x) for x in fleet.to_decode] == [m.Failed, m.Quiesced]
    assert all(x.ticket == 99 for x in fleet.to_decode)


def test_a_lost_decode_fails_its_rooms_at_once(fleet: Fleet) -> None:
    fleet.faults.arm("stall-transfer")
    begin(fleet)
    fleet.drain()
    fleet.lose_prefill("the connection was closed")
    assert code(fleet, "p1") == "peer_lost" and "p1" not in fleet.prefill.sink.quiets
    fleet.drain()
    assert "p1" in fleet.prefill.sink.quiets
