"""Conservation: whatever happens in whatever order, every request is live or ended once."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from engine.core.settings import Settings
from engine.router.documents import requests_document
from engine.router.ledger import Entry, Ledger
from engine.router.overdue import overdue


class LedgerMachine(RuleBasedStateMachine):
    """Any event on any entry, ended ones included."""

    entries = Bundle("entries")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.now = 0.0
        self.ends: dict[str, tuple[str, str | None]] = {}
        self.count = 0

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    @rule(target=entries, stream=st.booleans())
    def admit(self, stream: bool) -> Entry:
        self.count += 1
        return self.ledger.admit(f"r{self.count}", stream, "m", self.tick())

    @rule(entry=entries, event=st.sampled_from(["hold", "release", "streaming"]))
    def move(self, entry: Entry, event: str) -> None:
        getattr(self.ledger, event)(entry, self.tick())

    @rule(entry=entries)
    def dispatch(self, entry: Entry) -> None:
        before, retries = entry.attempts, self.ledger.retries
        self.ledger.dispatch(entry, 7, "p0", "d0", self.tick())
        if entry.ended is None:
            assert (entry.attempts, self.ledger.retries) == (before + 1, retries + (before > 0))

    @rule(entry=entries)
    def again(self, entry: Entry) -> None:
        self.ledger.again(entry, self.tick())
        if entry.ended is None:
            assert (entry.stage, entry.room, entry.legs) == ("admitted", None, {})

    @rule(
        entry=entries, side=st.sampled_from(["prefill", "decode"]), status=st.sampled_from(["done", "failed"])
    )
    def leg(self, entry: Entry, side: str, status: str) -> None:
        before = entry.legs[side].status if side in entry.legs else None  # type: ignore[index]
        self.ledger.leg(entry, side, status, self.tick())  # type: ignore[arg-type]
        if before not in (None, "pending"):
            assert entry.legs[side].status == before  # type: ignore[index]

    @rule(
        entry=entries,
        how=st.sampled_from(["done", "failed", "aborted"]),
        code=st.sampled_from([None, "x", "y"]),
    )
    def end(self, entry: Entry, how: str, code: str | None) -> None:
        first = self.ledger.end(entry, how, code, self.tick(), 0.0)  # type: ignore[arg-type]
        assert first == (entry.id not in self.ends)
        self.ends.setdefault(entry.id, (how, code))

    @rule(entry=entries)
    def the_id_of_a_live_entry_is_taken(self, entry: Entry) -> None:
        if entry.ended is None:
            with pytest.raises(ValueError, match=entry.id):
                self.ledger.admit(entry.id, False, "m", self.now)

    @invariant()
    def conserved(self) -> None:
        c = self.ledger.counters()
        ended = c["requests_done"] + c["requests_aborted"] + sum(c["requests_failed"].values())
        assert c["requests_total"] == self.count == len(self.ledger.live) + ended
        assert set(self.ledger.live).isdisjoint(self.ends)

    @invariant()
    def ends_are_sticky(self) -> None:
        assert {e.id: (e.ended, e.code) for e in self.ledger.recent} == dict(list(self.ends.items())[-256:])

    @invariant()
    def documents_are_whole(self) -> None:
        document = requests_document(self.ledger, "router", self.now, 0.0)
        assert len(document["requests"]) == len(self.ledger.live)
        assert all(0 <= r["stage_age_s"] <= r["age_s"] for r in document["requests"])


TestLedger = LedgerMachine.TestCase


def test_idle_counts_from_the_last_sign_of_life_and_only_once_dispatched() -> None:
    settings = Settings.from_env({"PD_ROUTER_IDLE_TIMEOUT": "10", "PD_ROUTER_TOTAL_TIMEOUT": "100"})
    ledger = Ledger()
    entry = ledger.admit("r", True, "m", 0.0)
    assert overdue(entry, settings, 50.0) is None
    ledger.dispatch(entry, 1, "p0", "d0", 50.0)
    assert overdue(entry, settings, 59.9) is None
    ledger.progress("r", "d0", ("running", 1), False, 58.0)
    ledger.progress("r", "d0", ("running", 1), False, 66.0)  # the same report again is no life
    ledger.progress("unknown", "d0", ("running", 1), False, 66.0)
    assert overdue(entry, settings, 67.9) is None
    late = overdue(entry, settings, 68.0)
    assert (
        late is not None
        and late.code == "router_idle_timeout"
        and "prefill leg on p0 pending" in late.message
    )
    ledger.tokens(entry, 1, 95.0)
    total = overdue(entry, settings, 100.0)
    assert total is not None and total.code == "router_total_timeout"
    assert "decode leg on d0 streaming" in total.message


def test_a_wait_for_a_turn_that_an_engine_reports_is_no_silence() -> None:
    settings = Settings.from_env({"PD_ROUTER_IDLE_TIMEOUT": "10", "PD_ROUTER_TOTAL_TIMEOUT": "1000"})
    ledger = Ledger()
    entry = ledger.admit("r", True, "m", 0.0)
    ledger.dispatch(entry, 1, "p0", "d0", 0.0)
    for now in range(5, 305, 5):
        ledger.progress("r", "p0", ("waiting", 0, 0), True, float(now))
        assert overdue(entry, settings, now + 4.9) is None
    ledger.progress("r", "p0", ("prefilling", 256, 0), False, 308.0)
    ledger.progress("r", "p0", ("prefilling", 512, 0), False, 316.0)
    assert overdue(entry, settings, 325.9) is None
    late = overdue(entry, settings, 326.0)
    assert late is not None and late.code == "router_idle_timeout"
