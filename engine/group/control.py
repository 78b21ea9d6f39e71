"""A rank's ear to its parent: messages in order, and for how long there were none; and what ends it then."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time

import msgspec

from engine.core.errors import Exit
from engine.core.framing import Channel
from engine.group.messages import Fatal, ParentBeat, RankBeat, ToRank
from engine.group.outbox import Outbox

log = logging.getLogger("pdctl.engine")
BEAT_INTERVAL = 0.5
# A gap this long between two beats of this rank: it was itself stopped, and heard nobody.
FROZEN = 2.0
# What a parent that was only stopped needs to end the group itself, with its exit code and a word to clients.
GRACE = 2.0


class Control:
    """One reading thread. `receive` is for one thread, the rest for any."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inbox: queue.SimpleQueue[ToRank | None] = queue.SimpleQueue()
        self._heard = time.monotonic()
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def receive(self) -> ToRank | None:
        """The next message that is no beat; None when the parent is gone."""
        return self._inbox.get()

    @property
    def silence(self) -> float:
        """Seconds since the parent was last heard."""
        with self._lock:
            return time.monotonic() - self._heard

    def forgive(self, seconds: float) -> None:
        """This rank was itself stopped that long: not its parent's silence."""
        with self._lock:
            self._heard = min(time.monotonic(), self._heard + seconds)

    def _read(self) -> None:
        decoder = msgspec.msgpack.Decoder(ToRank)
        try:
            while True:
                message = decoder.decode(self._channel.receive())
                with self._lock:
                    self._heard = time.monotonic()
                if not isinstance(message, ParentBeat):
                    self._inbox.put(message)
        except (OSError, msgspec.MsgspecError):
            self._inbox.put(None)  # the parent is gone, and the kernel ends this process with it


def beat(outbox: Outbox, rank: int, control: Control, timeout: float) -> None:
    """A thread's body: says that this process is scheduled at all, and ends the group of a silent parent."""
    turned = time.monotonic()
    while True:
        outbox.put(RankBeat(rank, os.getpid()))
        time.sleep(BEAT_INTERVAL)
        gap, turned = time.monotonic() - turned, time.monotonic()
        if gap > FROZEN:
            control.forgive(gap)
        if (silence := control.silence) > timeout:
            _end_group(outbox, rank, silence)


def _end_group(outbox: Outbox, rank: int, silence: float) -> None:
    """End a frozen parent and this rank with it, so that whoever supervises the engine sees it end.

    A parent that was stopped is woken, reads why, and ends the group in order; one that does not come round
    is killed, and the kernel ends every rank with it.
    """
    parent = os.getppid()
    why = f"the API process (pid {parent}) was silent for {silence:.1f} s"
    log.error("rank %d ends its group: %s", rank, why)
    outbox.put(Fatal(rank=rank, exit=int(Exit.RANK_FROZEN), message=why))
    for how, patience in ((signal.SIGCONT, GRACE), (signal.SIGKILL, 0.0)):
        if parent == 1 or os.getppid() != parent:
            break
        os.kill(parent, how)
        time.sleep(patience)
    os._exit(Exit.RANK_FROZEN)
