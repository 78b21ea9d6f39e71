"""What a measurement takes from the engines' states and from what its clients saw."""

from __future__ import annotations

from typing import Any

import pytest

from pdctl.fleet.chain import IDLE, PREALLOC
from pdctl.flows import admin
from pdctl.flows.load.plan import Shape
from pdctl.flows.load.report import Shot
from pdctl.flows.tune import restarts
from pdctl.flows.tune.measure import Phase, Plan, Watcher


class Member:
    """An engine of a fleet, as far as the watcher asks."""

    def __init__(self, role: str) -> None:
        self.role, self.name, self.url = role, role, role


class Ctx:
    def __init__(self) -> None:
        self.fleet = self

    def say(self, text: str) -> None:
        pass

    def engines(self) -> list[Member]:
        return [Member("prefill"), Member("decode")]


def leg(stage: str, age: float, waiting_on: str | None) -> dict[str, Any]:
    return {"stage": stage, "stage_age_s": age, "waiting_on": waiting_on}


def test_the_wait_for_a_turn_on_prefill_is_no_wait_that_decode_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    legs = [
        leg("preallocated", 80.0, "turn"),
        leg("preallocated", 3.0, "transfer"),
        leg("waiting", 7.0, "slot"),
        leg("running", 90.0, None),
    ]
    state = {"queues": {"waiting": {"depth": 1}}, "requests": legs}
    monkeypatch.setattr(admin, "state", lambda ctx, url, deadline: state if url == "decode" else {})
    watcher = Watcher(Ctx())  # type: ignore[arg-type]
    watcher.look()
    assert (watcher.waited, watcher.waiting) == (7.0, 1)


def test_what_the_clients_saw() -> None:
    shots = (
        Shot(0, 0, 9.0, "", ttft=8.0),
        Shot(0, 1, 60.0, "hung", ttft=50.0),
        Shot(1, 0, 50.0, "prealloc_timeout"),
        Shot(1, 1, 90.0, "router_idle_timeout"),
        Shot(2, 0, 90.0, "kv_transfer_timeout"),
    )
    phase = Phase("saturated", 100.0, (), {}, 0, shots)
    assert phase.silent == 8.0 and phase.cut_by == {PREALLOC, IDLE}
    assert phase.trouble.startswith("4 of 5 requests failed (")


def test_the_first_transfer_behind_each_restart_is_the_cold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefill keeps its last dwells only: the load behind a restart pushes the first one out."""
    made: list[tuple[float, float, str]] = [(1.0, 0.3, "done")]  # from before

    def restarted(ctx: object) -> None:
        at = made[-1][0]
        made.extend([(at + 1.0, 9.0, "failed"), (at + 2.0, 1.5 + at / 100.0, "done")])

    def loaded(ctx: object, plan: Plan) -> Phase:
        at = made[-1][0]
        made.extend((at + n, 0.2, "done") for n in range(1, 4))
        return Phase(plan.name, 5.0, (0.2,) * 3, {"failed": 1}, int(at), ())

    def state(ctx: object, url: str, deadline: float) -> dict[str, Any]:
        return {"dwell": {"recent": made[-3:]}} if url == "prefill" else {}

    monkeypatch.setattr(admin, "state", state)
    monkeypatch.setattr(restarts, "_together", restarted)
    monkeypatch.setattr(restarts, "measure_one", loaded)
    ctx: Any = Ctx()
    plan = Plan("load", Shape(agents=3, seconds=5.0), 30, 5.0)
    behind, cold = restarts.measure_restarts(ctx, 2, False, plan)
    assert (cold.name, cold.dwells) == ("cold", (1.51, 1.56))
    assert (behind.name, behind.dwells, behind.seconds) == ("restarted", (0.2,) * 6, 10.0)
    assert behind.worst == {"failed": 2} and behind.waiting == 8
