"""Page ownership as a state machine: whatever happens, a page is free or has owners, and all are known."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.cache.pages import OwnershipError, PageAllocator
from tests.examples import examples

TOTAL = 12
OWNERS = [f"r{i}" for i in range(5)]
KEYS = [bytes([i]) for i in range(6)]


class Ownership(RuleBasedStateMachine):
    """The model is plain dicts; the allocator must agree with it after every step.

    An owner that takes pages may have a remote write open to them until that is over (`written`), or until it
    has ended and is released. `holds` is what a page was published as since it was taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pages = PageAllocator(TOTAL)
        self.held: dict[str, list[int]] = {}
        self.quarantined: dict[str, list[int]] = {}
        self.targets: dict[str, set[int]] = {}  # of open writes
        self.holds: dict[int, bytes | None] = {}

    def untouchable(self) -> set[int]:
        return {page for pages in self.targets.values() for page in pages}

    @rule(owner=st.sampled_from(OWNERS), count=st.integers(0, TOTAL), remote=st.booleans())
    def take(self, owner: str, count: int, remote: bool) -> None:
        if owner in self.quarantined:
            with pytest.raises(OwnershipError):
                self.pages.take(owner, count)
            return
        free = self.pages.free
        got = self.pages.take(owner, count)
        assert (got is None) == (count > free)
        if got:
            assert len(set(got)) == count
            for others in (*self.held.values(), *self.quarantined.values(), self.untouchable()):
                assert not set(got) & set(others), "a page with an owner was handed out"
            self.held[owner] = self.held.get(owner, []) + got
            self.holds |= dict.fromkeys(got)
            if remote:
                self.targets.setdefault(owner, set()).update(got)

    @rule(owner=st.sampled_from(OWNERS))
    def written(self, owner: str) -> None:
        """The transfer is over: no write is open, the pages are the owner's alone."""
        if owner in self.held:
            self.targets.pop(owner, None)

    @rule(owner=st.sampled_from(OWNERS))
    def give_back(self, owner: str) -> None:
        if owner in self.targets:
            return  # it is quarantined instead
        assert self.pages.give_back(owner) == len(self.held.pop(owner, []))

    @rule(owner=st.sampled_from(OWNERS))
    def quarantine(self, owner: str) -> None:
        pages = self.held.pop(owner, [])
        assert self.pages.quarantine(owner) == len(pages)
        if pages:
            self.quarantined[owner] = self.quarantined.get(owner, []) + pages

    @precondition(lambda self: self.quarantined)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.quarantined)))
        self.targets.pop(owner, None)
        assert self.pages.release(owner) == len(self.quarantined.pop(owner))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def publish(self, data: st.DataObject, key: bytes) -> None:
        owner = data.draw(st.sampled_from(sorted(self.held)))
        index = data.draw(st.integers(0, len(self.held[owner]) - 1))
        page = self.held[owner][index]
        if page in self.targets.get(owner, ()) or self.holds[page] not in (None, key):
            return  # only what is complete is published, as what it is
        self.pages.publish(owner, index, key)
        self.holds[page] = key

    @rule(owner=st.sampled_from(OWNERS), keys=st.lists(st.sampled_from(KEYS), unique=True, max_size=4))
    def share(self, owner: str, keys: list[bytes]) -> None:
        if owner in self.held or owner in self.quarantined:
            with pytest.raises(OwnershipError):
                self.pages.share(owner, keys)
            return
        count = self.pages.share(owner, keys)
        got = self.pages.pages(owner)
        assert len(got) == count and [self.holds[page] for page in got] == keys[:count]
        assert not set(got) & self.untouchable(), "a shared page is the target of an open write"
        if got:
            self.held[owner] = list(got)

    @rule(owner=st.sampled_from(OWNERS))
    def forget(self, owner: str) -> None:
        self.pages.forget(owner)
        for page in self.held.get(owner, []):
            key = self.holds[page]
            if key is not None:
                count = self.pages.share("nobody", [key])
                assert page not in self.pages.pages("nobody")
                assert self.pages.give_back("nobody") == count

    @rule()
    def flush(self) -> None:
        cached = self.pages.cached
        assert self.pages.flush() == cached and self.pages.cached == 0

    @invariant()
    def every_page_is_in_one_place(self) -> None:
        self.pages.check()
        held = {page for pages in self.held.values() for page in pages}
        quarantined = {page for pages in self.quarantined.values() for page in pages} - held
        assert (self.pages.held, self.pages.quarantined) == (len(held), len(quarantined))
        assert self.pages.free == TOTAL - len(held) - len(quarantined) >= self.pages.cached
        for owners in (list(self.held)[:1], list(self.held)[:3], list(self.held)):
            mine = {page for owner in owners for page in self.held[owner]}
            others = [p for o, p in self.held.items() if o not in owners] + list(self.quarantined.values())
            assert self.pages.span(owners) == len(mine)
            assert self.pages.gain(owners) == len(mine - {page for pages in others for page in pages})


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_the_check_sees_a_page_with_two_owners() -> None:
    pages = PageAllocator(4)
    pages.take("a", 2)
    pages._blank.append(pages.pages("a")[0])
    with pytest.raises(OwnershipError, match="5 pages accounted for, 4 exist"):
        pages.check()


def test_the_check_sees_a_reader_that_is_not_counted() -> None:
    pages = PageAllocator(4)
    pages.take("a", 2)
    pages._held["b"] = pages.pages("a")[:1]
    with pytest.raises(OwnershipError, match="other owners"):
        pages.check()


def test_what_was_unused_longest_goes_first_and_ends_go_before_beginnings() -> None:
    pages = PageAllocator(6)
    for owner, keys in (("old", b"abc"), ("new", b"xyz")):
        pages.take(owner, 3)
        for index, key in enumerate(keys):
            pages.publish(owner, index, bytes([key]))
    pages.give_back("old")
    pages.give_back("new")
    assert (pages.free, pages.cached) == (6, 6)
    pages.take("other", 2)  # c, then b
    assert pages.share("again", [b"a", b"b", b"c"]) == 1
    pages.give_back("again")
    pages.take("other", 1)  # z: the beginning of the old one was used since
    assert pages.share("again", [b"x", b"y", b"z"]) == 2 and pages.cached == 1
    pages.give_back("again")
    assert pages.flush() == 3 and pages.share("again", [b"a"]) == 0 and pages.free == 3
