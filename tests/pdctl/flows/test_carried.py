"""Requests that a co-restart carries over: what is paused, what went on, what failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdctl.fleet.load import load_fleet
from pdctl.flows import admin
from pdctl.flows.co_restart.carried import Carried, resumes
from pdctl.flows.context import Context
from pdctl.flows.init import Wanted, init_fleet


def request(id: str, stage: str, engine: str | None) -> dict[str, Any]:
    leg = None if engine is None else {"engine": engine, "status": "pending", "age_s": 1.0}
    return {"id": id, "stage": stage, "legs": {"prefill": leg, "decode": leg}}


def ended(id: str, how: str, code: str | None = None) -> dict[str, Any]:
    return {"id": id, "ended": how, "code": code}


@pytest.mark.parametrize(
    ("timeouts", "yes"),
    [({}, False), ({"router_tries": {"value": 1.0}}, False), ({"router_tries": {"value": 3.0}}, True)],
)
def test_a_router_resumes_when_it_says_so(timeouts: dict[str, Any], yes: bool) -> None:
    assert resumes({"timeouts": timeouts}) is yes and not resumes({})


def test_what_is_paused_is_followed_to_where_it_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_fleet(tmp_path / "fleet.toml", Wanted("live", "smollm2-135m"))
    documents: list[dict[str, Any]] = []
    monkeypatch.setattr(
        admin, "get", lambda *args, **kwargs: documents.pop(0) if len(documents) > 1 else documents[0]
    )
    with Context(load_fleet(tmp_path / "fleet.toml")) as ctx:
        carried = Carried(ctx, ctx.fleet.cells["a"])
        names = ["a", "b", "c", "d"]
        documents[:] = [
            {
                "requests": [request(n, "streaming", "decode-0") for n in names]
                + [request("x", "streaming", "other")]
            }
        ]
        assert carried.on_cell() == names
        documents[:] = [{"requests": [request(n, "held", None) for n in "abc"]}]  # d ended by itself
        carried.take(names)
        assert carried.ids == {"a", "b", "c"} and carried.resumed == 0
        documents[:] = [
            {"requests": [request("a", "admitted", None)], "recent": []},
            {
                "requests": [request("a", "streaming", "decode-0")],
                "recent": [
                    ended("b", "failed", "no_pair"),
                    ended("c", "aborted", "client"),
                    ended("y", "failed", "z"),
                ],
            },
        ]
        assert carried.follow(10.0) == "3 requests were paused, 1 of them failed: b (no_pair)."
        assert (carried.resumed, carried.cut) == (1, {"b": "no_pair"})
        documents[:] = [{"requests": [request("a", "held", None)]}]
        assert "1 paused requests still wait" in carried.follow(0.1)
