"""diagnose ends within its deadlines, whatever hangs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pdctl.flows.diagnose import diagnose
from tests.pdctl.flows.conftest import Bench


def test_a_hung_host_costs_its_deadline_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*args: Any) -> dict[str, Any]:
        time.sleep(60.0)
        return {}

    monkeypatch.setattr("pdctl.flows.collect.hosts.gather", hang)
    monkeypatch.setattr("pdctl.flows.collect.hosts.HOST_DEADLINE", 0.5)
    begin = time.monotonic()
    report = diagnose(bench.context(), gap=0.1)
    assert time.monotonic() - begin < 15.0
    assert "did not answer within 0.5 s" in str(report.facts.engines[0].member.unit)
