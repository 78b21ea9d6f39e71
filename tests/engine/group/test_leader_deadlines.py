"""The leader's own deadlines, queue and drain: each ends what is late, says so once, and is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.core.settings import Settings
from engine.core.types import Request, Sampling, Shape
from engine.faults import Faults
from engine.group import leader as module
from engine.group.leader import Leader, admin
from engine.group.messages import EngineConfig, Out
from engine.transfer.commands import AgentInfo
from engine.transfer.coordinator import Transfer


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


class Still:
    """A leader that is turned by hand and whose model never runs."""

    max_model_len, eos, digest = 64, (), ""
    shape = Shape(layers=1, kv_heads=1, head_dim=8, page_size=16, itemsize=4)

    def __init__(self, clock: Clock) -> None:
        self.clock, self.out, settings = clock, list[Out](), Settings.from_env({})
        config = EngineConfig(
            instance="e", role="both", incarnation="i", model="", host="", port=0, advertise="", pages=9
        )
        agent = AgentInfo(rank=0, metadata=b"", base=0, device=0, heads=(0, 1), pages=9)
        shape: dict[str, str | int] = {"layers": 1, "page_size": 16}
        self.leader = Leader(config, settings, self, lambda *_: [], lambda _: None, self.out.append, Faults())
        transfer = Transfer(
            role="both", instance="e", incarnation="i", fingerprint=shape, agents=[agent], settings=settings,
            token=b"", ranks=lambda _: None, sink=self.leader, clock=clock.monotonic,
        )  # fmt: skip
        self.leader.attach(transfer)
        self.deadlines = transfer.deadlines

    def run(self, batch: Any) -> torch.Tensor | None:
        raise AssertionError("nothing runs here")

    def submit(self, id: str) -> None:
        self.leader.submit(Request(id=id, prompt=[1] * 20, sampling=Sampling(max_tokens=2)))
        self.leader._handle_events()

    def after(self, seconds: float) -> list[tuple[str, str | None]]:
        """Who has been told what by then."""
        self.clock.now += seconds
        self.deadlines.run_due()
        told = [(out.id, out.code) for out in self.out]
        self.leader._handle_events()
        return told


def test_the_queue_deadline_is_told_and_counted(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    still = Still(clock)
    still.submit("a")
    assert still.after(299.9) == []
    assert still.after(0.1) == [("a", "queue_timeout")]
    assert caplog.messages == [
        "queue_timeout room=- request=a age=300.0s peer=- pages=0 deadline=PD_QUEUE_TIMEOUT=300"
    ]
    assert still.deadlines.fired() == {"queue": 1} and not still.leader.life.sequences


@pytest.mark.parametrize(("value", "due"), [(20, 20), (400, 400)])
def test_a_changed_queue_deadline_reaches_what_waits(clock: Clock, value: int, due: float) -> None:
    still = Still(clock)
    still.submit("a")
    assert still.after(10) == []
    admin(still.leader, "timeouts", {"queue": value})
    assert still.after(due - 10.1) == []
    assert still.after(0.1) == [("a", "queue_timeout")]


def test_the_drain_deadline_is_told_and_counted(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    still = Still(clock)
    still.submit("a")
    still.submit("b")
    admin(still.leader, "drain", {"timeout": 5})
    assert still.after(4.9) == []
    assert still.after(0.1) == [("a", "draining"), ("b", "draining")]
    assert "PD_DRAIN_TIMEOUT=5 s" in still.out[0].message
    assert caplog.messages == [
        f"draining room=- request={id} age=5.0s peer=- pages=0 deadline=PD_DRAIN_TIMEOUT=5" for id in "ab"
    ]
    assert still.deadlines.fired() == {"drain": 1} and not still.leader.life.sequences


def test_a_drain_that_ends_in_time_or_is_taken_back_is_silent(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    still = Still(clock)
    admin(still.leader, "drain", {"timeout": 5})
    assert still.after(6) == []
    admin(still.leader, "resume", {})
    still.submit("a")
    admin(still.leader, "drain", {"timeout": 5})
    admin(still.leader, "resume", {})
    assert still.after(6) == [] and list(still.leader.life.sequences) == ["a"]
    assert still.deadlines.fired() == {} and caplog.messages == []
