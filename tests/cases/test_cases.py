"""Every case is judged right, and the cases themselves are whole."""

from __future__ import annotations

import json
import tomllib

import pytest

from pdctl.diagnose.rules import BY_CODE
from tests.cases.case import Case, cases

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_verdict(case: Case) -> None:
    report = case.judge()
    assert case.faults(report) == [], [(p.finding.code, p.finding.summary) for p in report.verdict.findings]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case_is_whole(case: Case) -> None:
    """It names where it is from, its codes exist, and a cause has look-alikes that must not lead."""
    recorded = case.folder / "manifest.json"
    if recorded.exists():  # from a real run: it says what was asked, and when
        assert json.loads(recorded.read_text())["asked"]
    else:
        told = tomllib.loads((case.folder / "bundle.toml").read_text())
        assert told.get("source"), "bundle.toml has no source"
    assert {*case.leads, *case.never} <= set(BY_CODE)
    assert not set(case.leads) & set(case.never)
    assert case.never or not case.leads
