"""The seam between two engines of one stream: each token once, wherever the bytes are cut and lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import RequestError
from engine.http.errors import error_event
from engine.http.marks import Mark, mark_line, take_mark
from engine.router.stream import Stream

DONE = b"data: [DONE]\n\n"
USAGE = b'data: {"usage":1}\n\n'


def events(sizes: list[int], start: int) -> list[tuple[list[int], bytes]]:
    """(token ids, event) for each size, ids counted up from `start`."""
    out = []
    for size in sizes:
        out.append((list(range(start, start + size)), b'data: {"text":"%d"}\n\n' % start))
        start += size
    return out


def wire(parts: list[tuple[list[int], bytes]]) -> bytes:
    marked = [mark_line(ids, i == len(parts) - 1) + event for i, (ids, event) in enumerate(parts)]
    return b"".join(marked) + USAGE + DONE


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=8),
    st.lists(st.integers(0, 10_000), max_size=4),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_each_event_passes_once_and_whole_over_any_number_of_losses(
    sizes: list[int], losses: list[int], cuts: list[int]
) -> None:
    """An engine sends what the client lacks, dies after any byte, and the next one goes on."""
    whole = events(sizes, 0)
    stream, got = Stream(), b""
    for loss in [*losses, None]:
        left = [part for part in whole if part[1] not in got]
        assert list(stream.tokens) == [t for ids, event in whole if event in got for t in ids]
        data = wire(left)
        data = data if loss is None else data[: loss % (len(data) + 1)]
        edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
        for a, b in pairwise(edges):
            got += stream.feed(data[a:b])
        if stream.complete:
            break
        assert stream.resumable and not got.endswith((whole[-1][1], USAGE))
        stream.begin()
    assert got == b"".join(event for _, event in whole) + USAGE + DONE
    assert stream.events == len(whole) + 1 and stream.rest() == b""


def test_a_stream_without_marks_passes_as_it_is_and_cannot_go_on() -> None:
    stream = Stream()
    assert stream.resumable
    assert stream.feed(b"data: a\r\n\r\ndata: b") == b"data: a\r\n\r\n"
    assert not stream.resumable
    assert (stream.rest(), stream.complete) == (b"data: b", True)


def test_an_error_event_is_told_and_not_passed() -> None:
    stream = Stream()
    error = error_event(RequestError("peer_lost", "It went.", 502))
    assert stream.feed(mark_line([1], False) + b"data: x\n\n" + error + b"data: y\n\n") == b"data: x\n\n"
    assert stream.error is not None
    assert (stream.error.code, stream.error.message, stream.error.status) == ("peer_lost", "It went.", 502)
    stream.begin()
    assert stream.error is None and stream.feed(b'data: {"error": 7}\n\n') == b""
    assert stream.error is not None and stream.error.code == "engine_failed"


@pytest.mark.parametrize("last", [False, True])
@settings(deadline=None)
@given(st.lists(st.integers(0, 1 << 31)))
def test_a_mark_is_read_as_it_was_written(last: bool, tokens: list[int]) -> None:
    assert take_mark(mark_line(tokens, last) + b"data: x\n\n") == (Mark(tokens, last), b"data: x\n\n")


@pytest.mark.parametrize("event", [b"data: : tokens 1\n\n", b": ping\n\n", b": tokens 1 x\ndata: y\n\n"])
def test_another_comment_is_no_mark(event: bytes) -> None:
    assert take_mark(event) == (None, event)
