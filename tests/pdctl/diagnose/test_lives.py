"""An end that is over: how much it counts once a newer life is at work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pdctl.adapters.signs import TABLE
from pdctl.adapters.traces import Traces
from pdctl.diagnose.lives import gravity, recovered
from pdctl.diagnose.rule import Severity

ENDED = (
    "2026-11-29 21:30:47,642 INFO pdctl.engine: prefill-0 (prefill) incarnation 67005915234d4df5\n"
    "Fatal Python error: Aborted\n"
)
AGAIN = (
    ENDED + "2026-11-29 21:31:57,248 INFO pdctl.engine: prefill-0 (prefill) incarnation af793a70d04fae21\n"
)


def traces(text: str, health: str) -> Traces:
    return Traces(events=TABLE.scan(text, "prefill-0", "prefill-0/log.txt"), health=health, lines=3)


@pytest.mark.parametrize(
    ("text", "health", "ready", "counts"),
    [
        (ENDED, "ok", True, None),  # nothing started since
        (AGAIN, "refused", False, None),
        (AGAIN, "ok", False, Severity.WARNING),
        (AGAIN, "ok", True, Severity.INFO),
    ],
)
def test_an_end_counts_less_the_better_the_next_life_is(
    scene: Any, text: str, health: str, ready: bool, counts: Severity | None
) -> None:
    scene.docs["prefill-0"]["ready"] = ready
    view = scene.facts().engine("prefill-0")
    party = replace(view, traces=traces(text, health))
    assert gravity(party) == counts
    assert recovered(party) == (counts is not None)
