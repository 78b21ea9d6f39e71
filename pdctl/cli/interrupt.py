"""Ctrl-C, SIGTERM and SIGHUP (a closed terminal, a lost SSH session) unwind a verb alike.

Locks are released, runs are marked, and what a drill changed is put back.
"""

from __future__ import annotations

import signal
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    """Those that were ignored when this process started stay ignored: nohup, a shell's background job."""
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _unwind)


def _unwind(number: int, frame: FrameType | None) -> None:
    """The first one counts. A session that ends sends several, and the rest would break off the clean-up:
    only Ctrl-C again, by somebody who watches, does that."""
    for later in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(later) is _unwind:
            # A handler, since children would inherit that a signal is ignored.
            signal.signal(later, _taken)
    raise KeyboardInterrupt


def _taken(number: int, frame: FrameType | None) -> None:
    """The end that it asks for is under way."""
