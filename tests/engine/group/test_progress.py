"""The watchdog is fed by progress: a leader that speaks and does not step is not alive."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from engine.group.engine import Engine


@pytest.mark.parametrize(
    ("age", "turn", "expected"),
    [
        (0.1, 0.2, True),
        (0.1, 119.0, True),
        (0.1, 120.0, False),
        (2.5, 0.2, False),
        (0.1, None, True),
        (None, None, False),
    ],
)
def test_only_a_fresh_word_of_a_loop_that_turns_counts(
    age: float | None, turn: float | None, expected: bool
) -> None:
    engine = Engine.__new__(Engine)
    at = None if age is None else time.monotonic() - age
    engine.client = SimpleNamespace(snapshot_at=at, snapshot={"progress": {"loop_age_s": turn}})  # type: ignore[assignment]
    assert engine.progressing(fresh=2.0, step=120.0) is expected
