"""The watchdog is fed by progress: a leader that speaks and does not step is not alive."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from engine.group.engine import Engine


@pytest.mark.parametrize(
    ("age", "turn", "stalled", "expected"),
    [
        (0.1, 0.2, None, True),
        (0.1, 119.0, None, True),
        (0.1, 120.0, None, False),
        (0.1, 0.2, 119.0, True),
        (0.1, 0.2, 120.0, False),  # the loop turns and runs no batch
        (2.5, 0.2, None, False),
        (0.1, None, None, True),
        (None, None, None, False),
    ],
)
def test_only_a_fresh_word_of_a_loop_that_turns_and_steps_counts(
    age: float | None, turn: float | None, stalled: float | None, expected: bool
) -> None:
    engine = Engine.__new__(Engine)
    at = None if age is None else time.monotonic() - age
    progress = {"loop_age_s": turn, "stalled_s": stalled}
    engine.client = SimpleNamespace(snapshot_at=at, snapshot={"progress": progress})  # type: ignore[assignment]
    assert engine.progressing(fresh=2.0, step=120.0) is expected
