"""Prefix reuse: pages that hold the beginning of an earlier prompt serve every later one that begins so.

A page is known by the chain of the tokens up to its end: its key is a digest of the key of the page before it
and of its own tokens, and the first one's of the model. Equal keys are equal contexts, so equal KV.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b

from engine.cache.pages import PageAllocator

# A prompt's last tokens are always computed: its answer begins with their logits. Two, because one alone
# would go through decode attention, whose sums are in another order than prefill's.
COMPUTED = 2


class Prefixes:
    """`model` is what all keys begin with; `enabled` is asked at every use. One thread, the allocator's."""

    def __init__(
        self,
        pages: PageAllocator,
        page_size: int,
        model: str = "",
        enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        self._pages, self._size, self._enabled = pages, page_size, enabled
        self._root = blake2b(model.encode(), digest_size=16).digest()
        self.asked = 0  # prompt tokens that came
        self.hit = 0  # of these, tokens whose KV was there

    def share(self, owner: str, tokens: Sequence[int], keys: list[bytes]) -> int:
        """Give `owner` the pages of what `tokens` begin with; how many tokens that is.

        `keys` are those of the tokens' pages as far as known, and are added to.
        """
        if not self._enabled():
            return 0
        whole = max(0, len(tokens) - COMPUTED) // self._size
        self._extend(keys, tokens, whole)
        return self._pages.share(owner, keys[:whole]) * self._size

    def publish(self, owner: str, tokens: Sequence[int], keys: list[bytes], first: int, last: int) -> None:
        """Pages first..last of `owner` hold the KV of their tokens, computed as prompts are."""
        if first < last and self._enabled():
            self._extend(keys, tokens, last)
            for index in range(first, last):
                self._pages.publish(owner, index, keys[index])

    def renew(self) -> None:
        """What is known now is found by no key that is made later: not what was computed over it either."""
        self._root = blake2b(self._root, digest_size=16).digest()

    def count(self, asked: int, hit: int) -> None:
        self.asked += asked
        self.hit += hit

    def _extend(self, keys: list[bytes], tokens: Sequence[int], pages: int) -> None:
        for index in range(len(keys), pages):
            own = array("q", tokens[index * self._size : (index + 1) * self._size])
            before = keys[-1] if keys else self._root
            keys.append(blake2b(before + own.tobytes(), digest_size=16).digest())
