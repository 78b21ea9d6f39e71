"""Ask many at once and keep every outcome: a failure never hides the others' results.

On daemon threads, not in a pool: a pool is waited for at exit, so one hung host would hold up a Ctrl-C
and the end of a command that has given that host up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from pdctl.errors import PdctlError

K = TypeVar("K")
R = TypeVar("R")
# sshd accepts ten unauthenticated connections at a time by default (MaxStartups 10:30:100).
CONCURRENT = 10


def begin(act: Callable[[], R]) -> Future[R]:
    """`act` on a thread of its own that nobody has to wait for."""
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done = act()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)
        else:
            future.set_result(done)

    threading.Thread(target=work, daemon=True, name="pdctl-ask").start()
    return future


def fan_out(keys: Iterable[K], ask: Callable[[K], R]) -> dict[K, R | PdctlError]:
    """`ask(key)` for every key, at most CONCURRENT at once; in the order of `keys`."""

    places = threading.BoundedSemaphore(CONCURRENT)

    def one(key: K) -> R | PdctlError:
        with places:
            try:
                return ask(key)
            except PdctlError as error:
                return error

    asked = {key: begin(partial(one, key)) for key in keys}
    return {key: future.result() for key, future in asked.items()}
