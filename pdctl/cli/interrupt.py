"""Ctrl-C, SIGTERM and SIGHUP (a closed terminal, a lost SSH session) unwind a verb alike.

Locks are released, runs are marked, and what a drill changed is put back.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Coroutine
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    """Those that were ignored when this process started stay ignored: nohup, a shell's background job."""
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _unwind)


def cut_short(work: Coroutine[object, object, None]) -> bool:
    """Run `work` to its end; True when one of these signals ended it, by which it is cancelled and unwinds.

    An exception out of a signal handler would leave an event loop in the middle of some task's step.
    """
    import asyncio  # most verbs never need it, and every one imports this file

    async def attended() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in _ENDS:
            if task is not None and signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, task.cancel)
        await work

    try:
        asyncio.run(attended())
    except asyncio.CancelledError:
        return True
    finally:
        # The loop has put back what Python begins with.
        install()
    return False


def _unwind(number: int, frame: FrameType | None) -> None:
    """The first one counts. A session that ends sends several, and the rest would break off the clean-up:
    only Ctrl-C again, by somebody who watches, does that."""
    for later in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(later) is _unwind:
            # A handler, since children would inherit that a signal is ignored.
            signal.signal(later, _taken)
    # What is said of tasks and coroutines that this breaks off, as they are collected, is no news and is a
    # traceback.
    logging.getLogger("asyncio").disabled = True
    sys.unraisablehook = lambda broken_off: None
    raise KeyboardInterrupt


def _taken(number: int, frame: FrameType | None) -> None:
    """The end that it asks for is under way."""
