"""docs/faults.md names every row of the matrix and nothing that is not in it."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.faults.cell import Result
from tests.faults.matrix import NOT_SHOWN, ROWS
from tests.faults.page import page

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
MACHINE: dict[str, Any] = {
    "cpu": "a CPU",
    "cores": 2,
    "memory_gib": 1.0,
    "kernel": "6",
    "python": "3",
    "libraries": {"torch": "2"},
}


def test_every_row_has_its_place_and_no_other() -> None:
    found = re.findall(r"^## (\d+)\. (.+)$", PAGE.read_text(), re.MULTILINE)
    assert [(int(number), name) for number, name in found] == list(ROWS.items())
    assert all(text in PAGE.read_text() for text in NOT_SHOWN.values())


def test_what_the_page_says_is_what_was_measured() -> None:
    good = asdict(Result(13, "Done lost", "prefill-0", evidence="acted 1 times", requests=7, detect_s=1.23))
    bad = asdict(Result(13, "Want lost", "prefill-0", requests=2, hung=1, problems=["1 requests hung"]))
    mute = asdict(Result(14, "slow", "prefill-0"))
    text = page([bad, good, mute], MACHINE)
    assert "1 of 3 cells passed, 1 requests hung, 0 answers wrong, of 9." in text
    assert "| Done lost | prefill-0 | acted 1 times | 1.23 () | - | 7 | 0 | 0 | 0 | - | 0 | passed |" in text
    assert "**failed**: 1 requests hung" in text and "**failed**: no evidence" in text
    assert text.count("Not part of this run.") == len(ROWS) - 2


def test_a_cell_that_was_run_again_is_on_the_page_once() -> None:
    first = asdict(Result(13, "Done lost", "prefill-0", problems=["nobody noticed"]))
    second = asdict(Result(13, "Done lost", "prefill-0", evidence="acted 1 times"))
    text = page([first, second], MACHINE)
    assert "nobody noticed" not in text and "1 of 1 cells passed" in text
