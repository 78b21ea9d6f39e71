"""A prompt that waits for its turn on prefill is not a transfer that stands still: whose limit counts."""

from __future__ import annotations

import pytest

from engine.core.types import FirstToken
from tests.engine.transfer.fleet_model import ADDRESS, TOKENS, Fleet


@pytest.fixture
def fleet() -> Fleet:
    """Both legs of room 1 are there, decode has asked, prefill computes others first. Shipped values."""
    made = Fleet()
    made.connect()
    made.prefill.sender.open(1, "p1")
    pages = made.decode.sink.pages.take("d1")
    made.decode.receiver.request(1, "d1", ADDRESS)
    assert pages is not None and made.decode.receiver.grant(1, pages, TOKENS)
    made.drain()
    return made


def waits_on(fleet: Fleet) -> str | None:
    (view,) = fleet.decode.receiver.snapshot()
    return view.waiting_on


def ended(fleet: Fleet) -> str:
    outcome = fleet.decode.sink.ends.get("d1")
    return outcome.code if outcome else ""


def compute(fleet: Fleet, complete: int, pages: list[int] | None = None) -> list[int]:
    """Prefill computes on, up to `complete` pages, and what it writes arrives."""
    pages = pages or fleet.prefill.sink.pages.take("p1")
    assert pages is not None and fleet.prefill.sender.chunk(1, pages, complete)
    fleet.drain()
    return pages


def test_no_transfer_deadline_runs_before_the_prompt_has_its_turn(fleet: Fleet) -> None:
    assert waits_on(fleet) == "turn"
    fleet.advance(299)
    assert ended(fleet) == "" and fleet.decode.deadlines.fired() == {}
    pages = compute(fleet, 1)
    fleet.advance(50)
    fleet.prefill.sender.computed(1, TOKENS, pages, FirstToken(token=1))
    fleet.drain()
    assert fleet.decode.sink.ends["d1"].kind == fleet.prefill.sink.ends["p1"].kind == "done"


def test_the_wait_for_the_turn_ends_by_the_queues_limit(fleet: Fleet) -> None:
    fleet.advance(299.9)
    assert ended(fleet) == ""
    fleet.advance(0.1)
    fleet.drain()
    assert ended(fleet) == "queue_timeout" and fleet.decode.deadlines.fired() == {"queue": 1}
    assert "PD_QUEUE_TIMEOUT=300 s" in fleet.decode.sink.ends["d1"].message
    assert fleet.prefill.sink.ends["p1"].code == "queue_timeout", "prefill is told"
    assert "d1" in fleet.decode.sink.quiets


def test_a_turn_that_brings_nothing_ends_by_the_transfers_limit(fleet: Fleet) -> None:
    fleet.faults.arm("stall-transfer", count=1)
    fleet.advance(250)
    compute(fleet, 1)
    assert waits_on(fleet) == "transfer"
    fleet.advance(99.9)
    assert ended(fleet) == ""
    fleet.advance(0.1)
    assert ended(fleet) == "kv_transfer_timeout" and fleet.decode.deadlines.fired() == {"transfer": 1}


def test_each_page_that_arrives_gives_the_transfer_its_time_again(fleet: Fleet) -> None:
    pages = compute(fleet, 1)
    for complete in (1, 2):
        fleet.advance(99)
        compute(fleet, complete + 1, pages)
    fleet.advance(99.9)
    assert ended(fleet) == ""
    fleet.advance(0.1)
    assert ended(fleet) == "kv_transfer_timeout"
    assert "after page 3 of 3 within PD_DECODE_TRANSFER_TIMEOUT=100 s" in fleet.decode.sink.ends["d1"].message


def test_a_limit_that_is_changed_counts_for_the_wait_that_runs(fleet: Fleet) -> None:
    fleet.settings.set("transfer", 5, 0)
    fleet.settings.set("queue", 20, 0)
    fleet.decode.receiver.timeouts_changed()
    fleet.advance(19.9)
    assert ended(fleet) == ""
    compute(fleet, 1)
    fleet.advance(3)
    fleet.settings.set("transfer", 10, 0)
    fleet.decode.receiver.timeouts_changed()
    fleet.advance(6.9)
    assert ended(fleet) == ""
    fleet.advance(0.1)
    assert ended(fleet) == "kv_transfer_timeout"


def test_a_want_that_finds_its_prompt_computed_needs_no_turn() -> None:
    fleet = Fleet()
    fleet.connect()
    fleet.faults.arm("stall-transfer", count=1)
    fleet.prefill.sender.open(1, "p1")
    compute(fleet, 1)
    pages = fleet.decode.sink.pages.take("d1")
    fleet.decode.receiver.request(1, "d1", ADDRESS)
    assert pages is not None and fleet.decode.receiver.grant(1, pages, TOKENS)
    fleet.drain()
    assert waits_on(fleet) == "transfer"
    fleet.advance(100)
    assert ended(fleet) == "kv_transfer_timeout"
