"""Standard output and error that outlive their reader: a closed terminal, a lost SSH session, a full disk.

Progress is said in the middle of what must not stop halfway, and while things are put back. A line that
nobody can read is no reason to leave that undone.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class ReaderGone(Exception):
    """Who read the result has enough of it (`pdctl logs -f | head`).

    No OSError: click and rich end the process in silence, with exit code 1, when they see a broken pipe.
    """


class Enduring:
    """A text stream whose file becomes /dev/null once it is gone.

    A result's reader may leave early, which is ReaderGone; with `progress` that is an end like any other.
    """

    def __init__(self, stream: TextIO, progress: bool) -> None:
        self._stream = stream
        self._progress = progress

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lost(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lost(error)

    def _lost(self, error: OSError) -> None:
        if error.errno == errno.EPIPE and not self._progress:
            raise ReaderGone from None
        if error.errno != errno.EIO and not self._progress:
            raise error
        drop(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def drop(stream: TextIO) -> None:
    """What was not written yet and all that follows goes nowhere, also what the interpreter flushes last."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def enduring() -> Iterator[None]:
    """Within the block; at its end both streams are flushed, or dropped when that fails."""
    before = sys.stdout, sys.stderr
    # Closed by whoever started this (`>&-`): then there is no stream at all.
    out, err = (s if s is not None else open(os.devnull, "w") for s in before)  # noqa: SIM115
    sys.stdout = cast(TextIO, Enduring(out, progress=False))
    sys.stderr = cast(TextIO, Enduring(err, progress=True))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in (out, err):
            try:
                stream.flush()
            except OSError:
                drop(stream)
