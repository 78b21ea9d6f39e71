"""Token ids beside the events of a stream, as an SSE comment on the line before the data.

    : tokens 504 28 339
    data: {...}

An engine writes them only where the router asked (`resumable` in the body); the router takes them out. A
comment rather than a field of the document: it costs no decoding, and to a client it would be nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_TOKENS = b": tokens"
_LAST = b": last"


@dataclass(frozen=True)
class Mark:
    """Tokens whose text is complete with this event. `last`: the event says how the answer ended."""

    tokens: list[int]
    last: bool


def mark_line(tokens: Sequence[int], last: bool) -> bytes:
    """The comment line for one event."""
    return b" ".join([_LAST if last else _TOKENS, *(b"%d" % t for t in tokens)]) + b"\n"


def take_mark(event: bytes) -> tuple[Mark | None, bytes]:
    """An event's mark and the event without it; None for an event that has none."""
    if not event.startswith((_TOKENS, _LAST)):
        return None, event
    line, _, rest = event.partition(b"\n")
    words = line.split()[2:]
    if not all(word.isdigit() for word in words):
        return None, event
    return Mark([int(word) for word in words], line.startswith(_LAST)), rest
