"""[[suppress]]: what is known and accepted does not count, is not hidden, and counts again after its day."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pdctl import contracts
from pdctl.diagnose.facts import Suppression
from pdctl.diagnose.report import document, make
from pdctl.facts.clock import Clock
from pdctl.render.diagnose import lines

AT = 1_700_000_000.0


def skewed(scene: Any, hosts: Any, *suppressions: Suppression) -> Any:
    scene.hosts = [hosts(clock=Clock(-70.0, 0.1))]
    return make(replace(scene.facts(), suppressions=suppressions), 1.0)


def test_a_suppressed_finding_is_shown_and_does_not_count(scene: Any, hosts: Any) -> None:
    told = skewed(scene, hosts)
    first = told.verdict.findings[0].finding
    assert first.code == "PD801"
    report = skewed(scene, hosts, Suppression("PD801", "*", "lab clock", AT + 60))
    assert report.verdict.status == "healthy"
    doc = document(report)
    assert contracts.faults("diagnose", doc) == []
    assert [(m["code"], m["reason"]) for m in doc["suppressed"]] == [("PD801", "lab clock")]


def test_it_holds_for_its_code_and_subject_and_until_its_day_only(scene: Any, hosts: Any) -> None:
    for wrong in (
        Suppression("PD701", "*", "another code", AT + 60),
        Suppression("PD801", "h9*", "another subject", AT + 60),
    ):
        assert skewed(scene, hosts, wrong).verdict.findings[0].finding.code == "PD801"
    report = skewed(scene, hosts, Suppression("PD801", "*", "lab clock", AT - 1))
    codes = [p.finding.code for p in report.verdict.findings]
    assert codes[0] == "PD801" and "PD901" in codes


def test_the_last_day_is_told_as_the_fleet_file_writes_it(scene: Any, hosts: Any) -> None:
    """`until` is the end of that day."""
    until = 1_700_006_400.0  # 2023-11-15 00:00 UTC
    by = Suppression("PD801", "*", "lab clock", until)
    assert by.last_day == "2023-11-14" == Suppression("PD801", "*", "", until - 0.001).last_day
    report = skewed(scene, hosts, by)
    assert any("until the end of 2023-11-14" in text for _, text in lines(report))
