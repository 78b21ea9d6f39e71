"""Starting the program over a stream whose other end is a fresh Python that runs `CODE`."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pdctl.transport.far import calls, program
from pdctl.transport.far.calls import HEAD, Calls, Stream

# Isolated, without site-packages, UTF-8 whatever the locale; the program is the first thing on its input.
OPTIONS = ("-I", "-S", "-X", "utf8", "-c")


class NotStarted(Exception):
    """The stream ended first; `said` is what came."""

    def __init__(self, said: bytes) -> None:
        super().__init__(said.decode("utf-8", "replace"))
        self.said = said


def source() -> bytes:
    return Path(program.__file__).read_bytes()


def code(length: int) -> str:
    """For `python -c`: no quote, backslash or exclamation mark, so that any shell passes it on."""
    return f"import sys;exec(sys.stdin.buffer.read({length}))"


def arguments() -> list[str]:
    """What the program says back first, so that what came before is known not to be from it; and how many
    seconds of silence are the end of everything there, which is later than we give up here."""
    return [uuid.uuid4().hex, f"{calls.SILENCE * 4 / 3:g}"]


def start(stream: Stream, said_back: str, deadline: float, abort: Callable[[], None]) -> Calls:
    """Send the program and wait until it is there. NotStarted, TimeoutError or OSError when it is not."""
    end = time.monotonic() + deadline
    stream.settimeout(deadline)
    try:
        stream.sendall(source())
    except TimeoutError:
        raise
    except (OSError, EOFError):
        # It has ended already; why is still to be read.
        pass
    mark, said = b"\0" + said_back.encode() + b"\n", b""
    while not _whole(said.partition(mark)[2]):
        stream.settimeout(max(0.1, end - time.monotonic()))
        data = stream.recv(1 << 16)
        if not data:
            raise NotStarted(said)
        said += data
    frame = said.partition(mark)[2]
    length = HEAD.unpack_from(frame)[2]
    hello, rest = json.loads(frame[HEAD.size : HEAD.size + length]), frame[HEAD.size + length :]
    return Calls(stream, hello, rest, abort)


def _whole(frame: bytes) -> bool:
    return len(frame) >= HEAD.size and len(frame) >= HEAD.size + HEAD.unpack_from(frame)[2]
