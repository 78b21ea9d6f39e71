"""`pdctl requests` says which engine gets on with nothing, from what that engine says of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pdctl.errors import UnreachableError
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.requests import collect_requests
from pdctl.render.requests import show_requests

DECODE = "http://decode-0"
QUIET = {"stepping_s": None, "loop_age_s": 0.01, "stalled_s": None}


def _state(**over: Any) -> dict[str, Any]:
    row = {"id": "r", "room": 7, "stage": "running", "stage_age_s": 11.2, "waiting_on": None, "bytes": 0}
    ranks = [{"rank": rank, "pid": 90 + rank, "heartbeat_age_s": 0.4} for rank in range(2)]
    return {"snapshot_age_s": 0.1, "ranks": ranks, "progress": QUIET, "requests": [row]} | over


def _silent() -> list[dict[str, Any]]:
    ages = enumerate((0.4, 11.04))
    return [{"rank": rank, "pid": 90 + rank, "heartbeat_age_s": age} for rank, age in ages]


def _said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: dict[str, Any] | None
) -> str:
    """How the table tells the decode leg of one request."""
    legs = {"prefill": None, "decode": {"engine": "decode-0", "status": "pending", "age_s": 11.9}}
    request = {
        "id": "r", "room": 7, "stage": "dispatched", "age_s": 11.9, "stage_age_s": 11.9, "stream": True,
        "tokens_out": 0, "legs": legs,
    }  # fmt: skip

    def get(ctx: object, url: str, path: str, timeout: float = 5.0) -> dict[str, Any]:
        if path == "/v1/requests":
            return {"requests": [request], "recent": [], "now": 0.0}
        if state is None:
            raise UnreachableError("no_answer", "it does not answer")
        return state

    monkeypatch.setattr(admin, "get", get)
    engine = SimpleNamespace(name="decode-0", url=DECODE)
    fleet = SimpleNamespace(router=SimpleNamespace(url="http://router"), engines=lambda: [engine])
    show_requests(collect_requests(cast(Context, SimpleNamespace(fleet=fleet))), recent=False)
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (_state(), "decode-0 running 11.2 s 7"),
        (_state(ranks=_silent()), "decode-0 running 11.2 s, frozen: rank 1 silent for 11.0 s"),
        (_state(snapshot_age_s=12.0), "decode-0 running 11.2 s, frozen: no state for 12.0 s"),
        (_state(snapshot_age_s=12.0, requests=[]), "decode-0 frozen: no state for 12.0 s"),
        (_state(progress=QUIET | {"stepping_s": 11.0}), "decode-0 running 11.2 s, in one step for 11.0 s"),
        (_state(progress=QUIET | {"stalled_s": 11.0}), "decode-0 running 11.2 s, no step for 11.0 s"),
        (_state(progress=QUIET | {"stepping_s": 2.0}), "decode-0 running 11.2 s 7"),
        (_state(snapshot_age_s=None), "decode-0 does not answer"),
        (None, "decode-0 does not answer"),
    ],
)
def test_an_engine_that_does_not_get_on_is_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: dict[str, Any] | None,
    said: str,
) -> None:
    assert said in _said(monkeypatch, capsys, state)
