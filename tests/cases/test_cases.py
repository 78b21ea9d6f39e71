"""Every case is judged right, and the cases themselves are whole."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from pdctl.bundle.layout import What, place
from pdctl.diagnose.rules import BY_CODE
from pdctl.flows.diagnose import judge_bundle
from tests.cases.case import Case, cases

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_verdict(case: Case) -> None:
    report = case.judge()
    assert case.faults(report) == [], [(p.finding.code, p.finding.summary) for p in report.verdict.findings]


@pytest.mark.parametrize("head", ["decode-1  | ", "[pod/x-0/vllm] ", "(Worker pid=7) "])
def test_what_a_container_puts_before_each_line_changes_no_verdict(head: str, tmp_path: Path) -> None:
    for number, case in enumerate(CASES[::12]):
        if (case.folder / "manifest.json").exists():
            continue
        folder = tmp_path / str(number)
        shutil.copytree(case.folder, folder)
        for path in folder.rglob("*"):
            where = place(path.relative_to(folder).as_posix()) if path.is_file() else None
            if where is not None and where.what is What.LOG and not path.name.endswith(".gz"):
                path.write_text("".join(head + line for line in path.read_text().splitlines(keepends=True)))
        assert case.faults(judge_bundle(folder)) == [], case.name


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
