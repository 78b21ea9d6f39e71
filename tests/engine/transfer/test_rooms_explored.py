"""The real Sender and Receiver in every order of events that lies near usual lives of a room."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from engine.transfer import messages as m
from engine.transfer.receiver import Receiver
from engine.transfer.sender import Sender
from tests.engine.transfer.room_explorer import LIVES, explore


@pytest.fixture(autouse=True)
def no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "pdctl.engine.transfer")


LONG = pytest.param(150_000, 2, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize(("states", "faults"), [(8_000, 1), (4_000, 0), LONG])
def test_every_order_near_a_usual_life_keeps_the_promises(states: int, faults: int) -> None:
    found, depth, broken, way = explore(states, faults=faults)
    print(f"{found} states, depth {depth} around each point of {len(LIVES)} lives of a room")
    assert broken is None, f"{broken}: {way}"
    assert found >= states and depth >= 3


def quiet_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode frees pages at the end of a room, whatever prefill still writes."""
    real = Receiver._end

    def end(self: Receiver, entry: object, *args: object, **kwargs: object) -> bool:
        took = real(self, entry, *args, **kwargs)  # type: ignore[arg-type]
        if took and self._rooms.get(entry.room) is entry:  # type: ignore[attr-defined]
            self._quiet(entry)  # type: ignore[arg-type]
        return took

    monkeypatch.setattr(Receiver, "_end", end)


def done_before_all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Sender._hand_over

    def hand_over(self: Sender, entry: object) -> None:
        kept, entry.open = entry.open, {}  # type: ignore[attr-defined]
        real(self, entry)  # type: ignore[arg-type]
        entry.open = kept  # type: ignore[attr-defined]

    monkeypatch.setattr(Sender, "_hand_over", hand_over)


def no_ticket_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Receiver.on_message

    def on_message(self: Receiver, peer: object, message: m.RoomMessage) -> None:
        entry = self._rooms.get(message.room)
        if isinstance(message, m.Quiesced) and entry is not None:
            message = m.Quiesced(room=message.room, ticket=entry.ticket)
        real(self, peer, message)  # type: ignore[arg-type]

    monkeypatch.setattr(Receiver, "on_message", on_message)


def a_late_failure_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Receiver.on_message

    def on_message(self: Receiver, peer: object, message: m.RoomMessage) -> None:
        entry = self._rooms.get(message.room)
        if isinstance(message, m.Failed) and entry is not None and entry.ticket == message.ticket:
            entry.stage = "preallocated"
        real(self, peer, message)  # type: ignore[arg-type]

    monkeypatch.setattr(Receiver, "on_message", on_message)


def no_cancel_after_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Receiver.on_peer_up

    def up(self: Receiver, peer: object, address: str) -> None:
        cancel, self._cancel = self._cancel, lambda entry: None  # type: ignore[method-assign]
        real(self, peer, address)  # type: ignore[arg-type]
        self._cancel = cancel  # type: ignore[method-assign]

    monkeypatch.setattr(Receiver, "on_peer_up", up)


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        (quiet_at_the_end, "one owner"),
        (done_before_all_is_written, "handed over whole"),
        (no_ticket_is_read, "one owner"),
        (a_late_failure_counts, "ended twice"),
        (no_cancel_after_a_loss, "every room ends"),
    ],
)
def test_the_search_finds_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], promise: str
) -> None:
    fault(monkeypatch)
    found, _, broken, way = explore(4_000)
    assert broken is not None and promise in str(broken), (found, broken, way)
