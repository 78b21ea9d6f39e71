"""How many examples a property test draws: all of them in `make test-slow`, a third in `make test`."""

from __future__ import annotations

import os

SHARE = 1 if os.environ.get("TEST_EXAMPLES") == "all" else 3


def examples(whole: int) -> int:
    """Of a machine or a property of which an example takes a hundredth of a second and more."""
    return whole // SHARE
