"""Prefill takes back what decode has not asked for, and is told what decode asks for."""

from __future__ import annotations

import pytest

from engine.core.types import FirstToken
from tests.engine.transfer.fleet_model import ADDRESS, TOKENS, Fleet


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.connect()
    return made


def computed(fleet: Fleet) -> None:
    pages = fleet.prefill.sink.pages.held.get("p1") or fleet.prefill.sink.pages.take("p1")
    assert pages is not None
    fleet.prefill.sender.computed(1, TOKENS, pages, FirstToken(token=1))


def want(fleet: Fleet) -> None:
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    pages = fleet.decode.sink.pages.take("d1")
    assert pages is not None and fleet.decode.receiver.grant(1, pages, TOKENS)
    fleet.deliver(to_decode=False)


def test_what_nobody_asked_for_is_given_up_and_computed_again(fleet: Fleet) -> None:
    """Its inflight watchdog starts anew with the second computation; the handover is as ever."""
    fleet.prefill.sender.open(1, "p1")
    computed(fleet)
    fleet.advance(100.0)
    assert fleet.prefill.sender.give_up(1)
    fleet.prefill.sink.pages.give_back("p1")
    (view,) = fleet.prefill.sender.snapshot()
    assert (view.stage, view.pages, view.stage_age) == ("waiting", 0, 0.0)
    fleet.advance(100.0)
    assert fleet.prefill.deadlines.fired() == {}, "the watchdog of pages that are gone"
    want(fleet)
    fleet.drain()
    assert not fleet.prefill.sink.ends, "nothing is handed over that is not there"
    computed(fleet)
    fleet.drain()
    assert fleet.prefill.sink.ends["p1"].kind == fleet.decode.sink.ends["d1"].kind == "done"
    assert "d1" in fleet.decode.sink.readies


@pytest.mark.parametrize("chunks", [0, 1])
def test_a_room_is_kept_once_its_want_has_come(fleet: Fleet, chunks: int) -> None:
    fleet.prefill.sender.open(1, "p1")
    pages = fleet.prefill.sink.pages.take("p1")
    assert pages is not None
    if chunks:
        fleet.prefill.sender.chunk(1, pages, chunks)
    want(fleet)
    assert not fleet.prefill.sender.give_up(1)
    computed(fleet)
    fleet.drain()
    assert not fleet.prefill.sender.give_up(1), "it has ended"
    assert fleet.prefill.sink.ends["p1"].kind == "done"


@pytest.mark.parametrize("early", [True, False])
def test_each_want_is_told_once(fleet: Fleet, early: bool) -> None:
    """Also one that came before the request did."""
    told: list[str] = []
    fleet.prefill.sink.wanted = lambda room, rid: told.append(rid)  # type: ignore[method-assign]
    for step in (want, lambda f: f.prefill.sender.open(1, "p1"))[:: 1 if early else -1]:
        assert told == []
        step(fleet)
    computed(fleet)
    fleet.drain()
    assert told == ["p1"]
