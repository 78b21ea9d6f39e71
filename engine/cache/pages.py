"""Page ownership: free → held(owner) → quarantined(owner) → free, and nothing else.

A page that a remote write may still reach must not be handed out again. When its request ends it is
quarantined, and becomes free only when the transfer layer has said that no write can still land.
Thread-confined: the scheduler thread owns the allocator.
"""

from __future__ import annotations


class OwnershipError(RuntimeError):
    """A transition that the life of a page does not have; always a defect of the caller."""


class PageAllocator:
    """`total` pages numbered 0..total-1. Owners are request ids."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._held: dict[str, list[int]] = {}
        self._quarantined: dict[str, list[int]] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def held(self) -> int:
        return sum(map(len, self._held.values()))

    @property
    def quarantined(self) -> int:
        return sum(map(len, self._quarantined.values()))

    def held_by(self) -> dict[str, int]:
        return {owner: len(pages) for owner, pages in self._held.items()}

    def pages(self, owner: str) -> list[int]:
        """The owner's held pages in the order they were taken; empty when it holds none."""
        return self._held.get(owner, [])

    def take(self, owner: str, count: int) -> list[int] | None:
        """Give `owner` `count` more pages, or None (and change nothing) when too few are free."""
        if owner in self._quarantined:
            raise OwnershipError(f"{owner} has ended and can take no page")
        if count > len(self._free):
            return None
        got = [self._free.pop() for _ in range(count)]
        self._held.setdefault(owner, []).extend(got)
        return got

    def give_back(self, owner: str) -> int:
        """held → free, for pages that no remote write ever targeted. Returns how many."""
        pages = self._held.pop(owner, [])
        self._free.extend(pages)
        return len(pages)

    def quarantine(self, owner: str) -> int:
        """held → quarantined: the request ended, a remote write may still land. Returns how many."""
        pages = self._held.pop(owner, [])
        if pages:
            self._quarantined.setdefault(owner, []).extend(pages)
        return len(pages)

    def release(self, owner: str) -> int:
        """quarantined → free: nothing can write there any more. Returns how many."""
        pages = self._quarantined.pop(owner, [])
        self._free.extend(pages)
        return len(pages)

    def check(self) -> None:
        """Raise OwnershipError unless every page is in exactly one place."""
        groups = [self._free, *self._held.values(), *self._quarantined.values()]
        seen = [page for group in groups for page in group]
        if sorted(seen) != list(range(self.total)):
            raise OwnershipError(f"{len(seen)} pages accounted for, {self.total} exist")
