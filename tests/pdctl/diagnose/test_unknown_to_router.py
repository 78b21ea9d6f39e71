"""PD503: engines that run and that the running router was started without."""

from __future__ import annotations

import pytest

from pdctl.adapters.picture import Reach
from pdctl.diagnose.report import make
from pdctl.diagnose.rule import Finding, Severity
from tests.pdctl.diagnose.conftest import Scene


def found(scene: Scene) -> list[Finding]:
    placed = make(scene.facts(), 1.0).verdict.findings
    return [p.finding for p in placed if p.finding.code == "PD503"]


def test_a_router_that_was_not_told_of_an_engine_is_the_finding(scene: Scene) -> None:
    del scene.router["engines"][1]
    verdict = make(scene.facts(), 1.0).verdict
    assert [p.finding.code for p in verdict.findings] == ["PD503"]
    first = verdict.findings[0].finding
    assert (first.severity, first.remedy) == (Severity.WARNING, "pdctl deploy --limit router")
    assert first.subject == "router -> decode-0" and first.touches == {"decode-0"}
    assert "router lists prefill-0" in first.evidence


def test_a_router_that_knows_nobody_serves_nothing(scene: Scene) -> None:
    scene.router["engines"].clear()
    (first,) = found(scene)
    assert first.severity is Severity.ERROR and first.touches == {"prefill-0", "decode-0"}


def test_the_router_is_told_last_of_a_deploy(scene: Scene) -> None:
    scene.router["engines"].clear()
    scene.run = "ann@desk: pdctl deploy, for 8 s"
    (first,) = found(scene)
    assert first.severity is Severity.INFO and "ann@desk" in first.evidence[-1]


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_an_engine_that_is_down_is_another_finding(scene: Scene, name: str) -> None:
    scene.router["engines"] = [e for e in scene.router["engines"] if e["instance"] != name]
    scene.reach[name] = Reach.REFUSED
    assert found(scene) == []


def test_a_router_that_does_not_answer_accuses_nobody(scene: Scene) -> None:
    scene.router["engines"].clear()
    scene.reach["router"] = Reach.TIMED_OUT
    assert found(scene) == []
