"""Page ownership as a state machine: whatever happens, a page is in exactly one place."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.cache.pages import OwnershipError, PageAllocator

TOTAL = 12
OWNERS = [f"r{i}" for i in range(5)]


class Ownership(RuleBasedStateMachine):
    """The model is three plain dicts; the allocator must agree with it after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = PageAllocator(TOTAL)
        self.held: dict[str, set[int]] = {}
        self.quarantined: dict[str, set[int]] = {}

    @rule(owner=st.sampled_from(OWNERS), count=st.integers(0, TOTAL))
    def take(self, owner: str, count: int) -> None:
        if owner in self.quarantined:
            with pytest.raises(OwnershipError):
                self.pages.take(owner, count)
            return
        free = self.pages.free
        got = self.pages.take(owner, count)
        assert (got is None) == (count > free)
        if got:
            taken = set(got)
            assert len(taken) == count
            for others in (*self.held.values(), *self.quarantined.values()):
                assert not taken & others, "a page with an owner was handed out"
            self.held[owner] = self.held.get(owner, set()) | taken

    @rule(owner=st.sampled_from(OWNERS))
    def give_back(self, owner: str) -> None:
        assert self.pages.give_back(owner) == len(self.held.pop(owner, set()))

    @rule(owner=st.sampled_from(OWNERS))
    def quarantine(self, owner: str) -> None:
        pages = self.held.pop(owner, set())
        assert self.pages.quarantine(owner) == len(pages)
        if pages:
            self.quarantined[owner] = self.quarantined.get(owner, set()) | pages

    @precondition(lambda self: self.quarantined)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.quarantined)))
        assert self.pages.release(owner) == len(self.quarantined.pop(owner))

    @invariant()
    def every_page_is_in_one_place(self) -> None:
        self.pages.check()
        held = sum(map(len, self.held.values()))
        quarantined = sum(map(len, self.quarantined.values()))
        assert (self.pages.held, self.pages.quarantined) == (held, quarantined)
        assert self.pages.free == TOTAL - held - quarantined


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_check_sees_a_page_with_two_owners() -> None:
    pages = PageAllocator(4)
    pages.take("a", 2)
    pages._free.append(pages.pages("a")[0])
    with pytest.raises(OwnershipError, match="5 pages accounted for, 4 exist"):
        pages.check()
