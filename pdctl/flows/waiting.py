"""Waiting with a deadline, in one place."""

from __future__ import annotations

import time
from collections.abc import Callable

from pdctl.errors import DeadlineError


def until(check: Callable[[], str], seconds: float, poll: float = 0.1) -> float:
    """Poll `check` until it returns "" (nothing is missing); the seconds it took.

    DeadlineError with the last thing that was missing.
    """
    begin = time.monotonic()
    while True:
        missing = check()
        waited = time.monotonic() - begin
        if not missing:
            return waited
        if waited >= seconds:
            raise DeadlineError("deadline", f"After {seconds:g} s still: {missing}.")
        time.sleep(poll)
