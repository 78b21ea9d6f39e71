"""Ask many at once and keep every outcome: a failure never hides the others' results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pdctl.errors import PdctlError

K = TypeVar("K")
R = TypeVar("R")
# sshd accepts ten unauthenticated connections at a time by default (MaxStartups 10:30:100).
CONCURRENT = 10


def fan_out(keys: Iterable[K], ask: Callable[[K], R]) -> dict[K, R | PdctlError]:
    """`ask(key)` for every key, at most CONCURRENT at once; in the order of `keys`."""

    def one(key: K) -> R | PdctlError:
        try:
            return ask(key)
        except PdctlError as error:
            return error

    listed = list(keys)
    if not listed:
        return {}
    with ThreadPoolExecutor(min(CONCURRENT, len(listed))) as pool:
        return dict(zip(listed, pool.map(one, listed), strict=True))
