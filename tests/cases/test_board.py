"""The scoreboard of live faults: a word that picks no row is a mistake, not a success."""

from __future__ import annotations

import pytest

from tests.cases.live import board


def test_a_word_that_no_row_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert board.main(["no such fault"]) == 2
    assert board.main(["kill", "no such fault"]) == 2
    said = capsys.readouterr()
    assert "no row has no such fault in its name; rows: " in said.err and not said.out
