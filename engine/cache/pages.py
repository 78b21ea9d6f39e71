"""Page ownership: free → held(owner) → quarantined(owner) → free, and nothing else.

A page that a remote write may still reach must not be handed out again. When its request ends it is
quarantined, and becomes free only when the transfer layer has said that no write can still land.

A page whose content is complete and known by a key may be held by several owners, who only read it. Free
again, it keeps its content until it is taken for something else: the one that was unused longest goes first.
Only pages that `take` gave are written to, and it gives each to one owner: so no remote write is ever open to
a shared page. Thread-confined: the scheduler thread owns the allocator.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain


class OwnershipError(RuntimeError):
    """A transition that the life of a page does not have; always a defect of the caller."""


class PageAllocator:
    """`total` pages numbered 0..total-1. Owners are request ids."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._blank = list(range(total - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # free, content known; longest unused first
        self._held: dict[str, list[int]] = {}
        self._quarantined: dict[str, list[int]] = {}
        self._owners: Counter[int] = Counter()  # of a page that is not free
        self._key: dict[int, bytes] = {}
        self._by_key: dict[bytes, int] = {}

    @property
    def free(self) -> int:
        """Pages that can be taken, the cached ones among them."""
        return len(self._blank) + len(self._cached)

    @property
    def cached(self) -> int:
        """Free pages whose content is still known."""
        return len(self._cached)

    @property
    def held(self) -> int:
        return self.total - self.free - self.quarantined

    @property
    def quarantined(self) -> int:
        """Pages that ended requests alone have."""
        counts = Counter(chain.from_iterable(self._quarantined.values()))
        return sum(count == self._owners[page] for page, count in counts.items())

    def held_by(self) -> dict[str, int]:
        return {owner: len(pages) for owner, pages in self._held.items()}

    def pages(self, owner: str) -> list[int]:
        """The owner's held pages in logical order; empty when it holds none."""
        return self._held.get(owner, [])

    def span(self, owners: Iterable[str]) -> int:
        """Pages that these hold together."""
        return len(set(chain.from_iterable(map(self.pages, owners))))

    def gain(self, owners: Iterable[str]) -> int:
        """Pages that would be free if these gave back what they hold."""
        counts = Counter(chain.from_iterable(map(self.pages, owners)))
        return sum(count == self._owners[page] for page, count in counts.items())

    def take(self, owner: str, count: int) -> list[int] | None:
        """Give `owner` `count` more pages, or None (and change nothing) when too few are free."""
        self._refuse_ended(owner)
        if count > self.free:
            return None
        got = [self._next() for _ in range(count)]
        self._owners.update(got)
        self._held.setdefault(owner, []).extend(got)
        return got

    def give_back(self, owner: str) -> int:
        """held → free, for pages that no remote write targets now. Returns how many it held."""
        return self._let_go(self._held.pop(owner, []))

    def quarantine(self, owner: str) -> int:
        """held → quarantined: the request ended, a remote write may still land. Returns how many."""
        pages = self._held.pop(owner, [])
        if pages:
            self._quarantined.setdefault(owner, []).extend(pages)
        return len(pages)

    def release(self, owner: str) -> int:
        """quarantined → free: nothing can write there any more. Returns how many it had."""
        return self._let_go(self._quarantined.pop(owner, []))

    # what pages hold ----------------------------------------------------------------------------------

    def publish(self, owner: str, index: int, key: bytes) -> None:
        """The owner's page `index` is complete: nothing writes to it from now on, and `key` is its content.

        The first page with a content is the one that is shared; a second one stays its owner's own.
        """
        page = self._held[owner][index]
        if page not in self._key and key not in self._by_key:
            self._key[page], self._by_key[key] = key, page

    def share(self, owner: str, keys: Sequence[bytes]) -> int:
        """Give `owner`, who holds nothing, the pages with these contents up to the first unknown one."""
        self._refuse_ended(owner)
        if self._held.get(owner):
            raise OwnershipError(f"{owner} holds pages already")
        found = []
        for key in keys:
            page = self._by_key.get(key)
            if page is None:
                break
            self._cached.pop(page, None)
            found.append(page)
        if found:
            self._owners.update(found)
            self._held[owner] = found
        return len(found)

    def forget(self, owner: str) -> None:
        """The content of the owner's pages is not to be trusted: nobody else is given them."""
        for page in self.pages(owner):
            self._unkey(page)

    def flush(self) -> int:
        """Forget the content of all free pages. Returns how many there were."""
        count = len(self._cached)
        for page in self._cached:
            self._unkey(page)
        self._blank.extend(self._cached)
        self._cached.clear()
        return count

    def check(self) -> None:
        """Raise OwnershipError unless every page is free once, or has owners and all of them are counted."""
        lists = [*self._held.values(), *self._quarantined.values()]
        owners = Counter(chain.from_iterable(lists))
        places = [*self._blank, *self._cached, *owners]
        if sorted(places) != list(range(self.total)):
            raise OwnershipError(f"{len(places)} pages accounted for, {self.total} exist")
        known = {page for key, page in self._by_key.items() if self._key.get(page) == key}
        if owners != self._owners or len(known) != len(self._key) or not self._cached.keys() <= known:
            raise OwnershipError("a page has other owners than are counted, or a content that no key finds")

    def _refuse_ended(self, owner: str) -> None:
        if owner in self._quarantined:
            raise OwnershipError(f"{owner} has ended and can take no page")

    def _next(self) -> int:
        """A free page without content, else the cached one that was unused longest."""
        if self._blank:
            return self._blank.pop()
        page, _ = self._cached.popitem(last=False)
        self._unkey(page)
        return page

    def _unkey(self, page: int) -> None:
        key = self._key.pop(page, None)
        if key is not None:
            del self._by_key[key]

    def _let_go(self, pages: list[int]) -> int:
        """One owner less for each; the end of a prompt is forgotten before what it begins with."""
        for page in reversed(pages):
            self._owners[page] -= 1
            if self._owners[page]:
                continue
            del self._owners[page]
            if page in self._key:
                self._cached[page] = None
            else:
                self._blank.append(page)
        return len(pages)
