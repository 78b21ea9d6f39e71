"""Stop strings cut the text at the earliest match, whatever the pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.text.stops import StopStrings

short = st.text(alphabet="ab.", max_size=30)
stops_of = st.lists(st.text(alphabet="ab.", min_size=1, max_size=4), max_size=3)


def earliest(text: str, stops: list[str]) -> int | None:
    return min((at for s in stops if (at := text.find(s)) >= 0), default=None)


@given(short, stops_of, st.lists(st.integers(1, 5), max_size=30))
def test_pieces_give_what_the_whole_text_gives(text: str, stops: list[str], sizes: list[int]) -> None:
    matcher, got, rest, fed = StopStrings(stops), "", text, ""
    for size in [*sizes, len(text)]:
        got += matcher.add(rest[:size])
        fed, rest = fed + rest[:size], rest[size:]
        if matcher.matched is not None:
            break
        # Held back is at most what a stop string could still begin with.
        assert len(fed) - len(got) < max(map(len, stops), default=1)
    if matcher.matched is None:
        got += matcher.finish()
        assert earliest(text, stops) is None
        assert got == text
    else:
        # The first stop to be complete in what was fed; nothing of it is emitted.
        at = earliest(fed, stops)
        assert at is not None
        assert got == fed[:at]
        assert fed[at:].startswith(matcher.matched)


def test_no_text_follows_a_match() -> None:
    matcher = StopStrings(["END"])
    assert matcher.add("helloE") == "hello"
    assert matcher.add("NDmore") == ""
    assert matcher.matched == "END"
    assert (matcher.add("more"), matcher.finish()) == ("", "")


def test_a_false_start_is_released() -> None:
    matcher = StopStrings(["abc"])
    assert [matcher.add("xab"), matcher.add("d"), matcher.add("ab"), matcher.finish()] == [
        "x",
        "abd",
        "",
        "ab",
    ]


def test_without_stops_nothing_is_held() -> None:
    assert StopStrings([]).add("text") == "text"
