"""Pieces of text add up to the whole and never show half a character."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenize import Detokenizer


def bytes_decode(tokens: Sequence[int]) -> str:
    """A byte-level decoder: each token is one byte; one U+FFFD for an unfinished character."""
    return bytes(tokens).decode("utf-8", "replace")


def fallback_decode(tokens: Sequence[int]) -> str:
    """A byte-fallback decoder: a run that is no UTF-8 shows one U+FFFD for each byte."""
    try:
        return bytes(tokens).decode("utf-8")
    except UnicodeDecodeError:
        return "\ufffd" * len(tokens)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(
    st.text(alphabet=st.characters(exclude_characters="\ufffd", codec="utf-8")), st.lists(st.integers(0, 400))
)
def test_any_split_gives_the_text_and_no_broken_piece(text: str, cuts: list[int]) -> None:
    detokenizer = Detokenizer(bytes_decode)
    pieces = [detokenizer.add(part) for part in split(text.encode(), cuts)]
    assert all("\ufffd" not in p for p in pieces)
    assert "".join(pieces) + detokenizer.finish() == text


@given(st.text(alphabet=st.characters(exclude_characters="\ufffd", codec="utf-8"), max_size=40))
def test_a_character_of_byte_tokens_comes_whole(text: str) -> None:
    detokenizer = Detokenizer(fallback_decode)
    pieces = [detokenizer.add([b]) for b in text.encode()]
    assert "".join(pieces) + detokenizer.finish() == text


@given(st.binary(max_size=300))
def test_broken_bytes_come_out_as_the_decoder_shows_them(data: bytes) -> None:
    detokenizer = Detokenizer(bytes_decode)
    pieces = [detokenizer.add([b]) for b in data]
    got = "".join(pieces) + detokenizer.finish()
    assert got.replace("\ufffd", "") == bytes_decode(data).replace("\ufffd", "")


def test_the_tail_of_an_unfinished_character_is_emitted_at_the_end() -> None:
    detokenizer = Detokenizer(bytes_decode)
    assert detokenizer.add("a€".encode()[:3]) == "a"
    assert detokenizer.finish() == "\ufffd"


def test_a_leading_space_survives_after_a_prompt() -> None:
    """Sentencepiece decoders drop the space of the first token of a text."""
    words = {0: "Hello", 1: " world", 2: " again"}
    decode = lambda tokens: "".join(words[t] for t in tokens).removeprefix(" ")  # noqa: E731
    detokenizer = Detokenizer(decode, prompt=[0])
    assert [detokenizer.add([1]), detokenizer.add([2]), detokenizer.finish()] == [" world", " again", ""]


def test_endless_broken_bytes_do_not_grow_the_window() -> None:
    longest = 0

    def decode(tokens: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return bytes_decode(tokens)

    detokenizer = Detokenizer(decode)
    emitted = sum(len(detokenizer.add([0xFF])) for _ in range(2000))
    assert emitted + len(detokenizer.finish()) == 2000
    assert longest < 200
