"""Tables and plans stay readable: on a narrow terminal, and after a first deploy."""

from __future__ import annotations

import pytest

from pdctl.plan.step import Pending, Plan, Step
from pdctl.render.plan import show_plan
from pdctl.render.requests import show_requests
from pdctl.render.table import _rich

COLUMNS = ("cell", "engine", "role", "unit", "state", "incarnation", "queues", "pages")
ROW = ["a", "decode-0", "decode", "active", "ready", "470e5c6e", "-", "1023/1023"]


@pytest.mark.parametrize(("width", "whole"), [(60, True), (160, False)])
def test_a_table_that_does_not_fit_is_a_paragraph_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, whole: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _rich(COLUMNS, [ROW], "fleet demo")
    said = capsys.readouterr().out
    assert ("a, engine decode-0, role decode" in said) is whole
    assert all(word in said for word in ("decode-0", "470e5c6e", "1023/1023"))
    assert max(map(len, said.splitlines())) <= width


def test_an_applied_plan_tells_changes_and_counts_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    def pending(what: str, *lines: str) -> Pending:
        return Pending(Step(what, "local", what, lambda: (), lambda: None), lines)

    made = Plan(
        (
            pending("write the env file of a", "PD_QUEUE_TIMEOUT: (unset) -> 300"),
            pending("start a", "a is not there yet"),
            pending("write the env file of b", "PD_QUEUE_TIMEOUT: 200 -> 300"),
        )
    )
    show_plan(made, applied=True)
    assert capsys.readouterr().out.splitlines() == [
        "* set up what was not there: 2 changes; `pdctl history` keeps the steps",
        "* local: write the env file of b",
        "    PD_QUEUE_TIMEOUT: 200 -> 300",
    ]


def _seen(stage: str, waiting_on: str | None, moves: bool | None) -> dict[str, object]:
    told = {"stage": stage, "stage_age_s": 40.0, "waiting_on": waiting_on, "moves": moves}
    return {"known": True, "still": "", **told}


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (_seen("running", None, None), "running 40.0 s"),
        (_seen("transferring", "done", False), "transferring 40.0 s, waiting on done, no progress"),
        (_seen("transferring", "done", True), "transferring 40.0 s, waiting on done"),
        ({"known": False, "still": ""}, "does not know it 3.1 s"),
        (None, "does not answer"),
    ],
)
def test_a_leg_that_has_not_ended_is_called_by_what_its_engine_says(
    capsys: pytest.CaptureFixture[str], seen: object, said: str
) -> None:
    legs = {
        "prefill": {"engine": "prefill-0", "status": "done", "age_s": 3.0},
        "decode": {"engine": "decode-0", "status": "pending", "age_s": 3.1, "seen": seen},
    }
    row = {
        "id": "r",
        "stage": "dispatched",
        "age_s": 3.2,
        "stage_age_s": 3.1,
        "tokens_out": 9,
        "stream": True,
    }
    show_requests({"requests": [row | {"legs": legs, "room": 7}], "recent": []}, recent=False)
    out = capsys.readouterr().out
    assert "prefill-0 done 3.0 s" in out and "pending" not in out
    assert f"decode-0 {said} " in " ".join(out.split()) + " "
