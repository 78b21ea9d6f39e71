"""Options of diagnose that need no fleet, or one that does not run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl import diagnose
from pdctl.__main__ import main
from pdctl.cli.remedy import acts, command_of
from pdctl.errors import PdctlError
from pdctl.exits import Exit
from pdctl.flows.diagnose import judge_bundle
from tests.cases.case import ROOT
from tests.pdctl.models import model_folder

STALE, UNSURE = ROOT / "A" / "A1", ROOT / "G" / "G4"


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--local", "--model", str(model_folder(tmp_path / "model"))]) == Exit.OK
    return tmp_path


def test_a_page_is_written_beside_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["diagnose", "--from", str(STALE), "--html", str(page)]) == Exit.FINDINGS
    assert page.read_text().startswith("<!doctype html>") and "Cause: PD510" in capsys.readouterr().out
    assert main(["diagnose", "--from", str(STALE), "--html", str(tmp_path / "no" / "x")]) == Exit.USAGE


@pytest.mark.parametrize(
    "options",
    [
        ["--bundle", "x"],
        ["--watch", "1"],
        ["--fix"],
        ["--pseudonyms"],
        ["--since", "5m"],
        ["--probes"],
        ["--stacks"],
    ],
    ids=lambda o: o[0],
)
def test_what_needs_a_fleet_does_not_go_with_a_saved_bundle(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "--from", str(STALE), *options]) == Exit.USAGE
    assert options[0] in capsys.readouterr().err


def test_a_bundle_without_a_name_is_not_this_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--from", ""]) == Exit.USAGE
    assert "--from has no name" in capsys.readouterr().err


def test_a_page_is_for_its_owner_alone_also_where_another_was(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("older")
    page.chmod(0o644)
    for target in (page, tmp_path / "new.html"):
        assert main(["diagnose", "--from", str(STALE), "--html", str(target)]) == Exit.FINDINGS
        assert target.stat().st_mode & 0o777 == 0o600, target


# What a remedy of pdctl may be that changes nothing, and so is not run by --fix.
LOOKS = ("check", "logs", "status", "requests", "tune-timeout")


def test_every_remedy_that_is_a_command_is_one_that_pdctl_runs_or_only_looks() -> None:
    """Of every rule, as it stands in its source; and words that a person would have to fill in are none."""
    folder = Path(diagnose.__file__).parent / "rules"
    found = {m for f in folder.rglob("*.py") for m in re.findall(r'"(pdctl [a-z][^"]*)"', f.read_text())}
    assert found
    for remedy in found:
        words = re.sub(r"\{[^}]*\}", "NAME", remedy).split()[1:]
        assert acts(words) or words[0] in LOOKS, remedy


def test_an_armed_fault_is_disarmed() -> None:
    assert acts(["drill", "disarm", "decode-0"]) and not acts(["drill", "list"]) and not acts(["logs", "x"])


def test_only_a_certain_remedy_that_acts_is_run() -> None:
    assert command_of(judge_bundle(STALE)) == ["restart", "--co", "main"]
    with pytest.raises(PdctlError, match="is not certain of its cause") as unsure:
        command_of(judge_bundle(UNSURE))
    assert any("to tell:" in line for line in unsure.value.details)
    with pytest.raises(PdctlError, match="is no command of pdctl"):
        command_of(judge_bundle(ROOT / "E" / "E7"))


def test_a_profile_with_an_error_is_a_finding_with_its_line(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fleet / "profiles" / "default.toml"
    lines = path.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if line.startswith("value = "))
    lines[number] = 'value = "ninety"'
    path.write_text("\n".join(lines))
    capsys.readouterr()
    main(["--json", "diagnose"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (told,) = [f for f in findings if f["code"] == "PD123"]
    assert f"profiles/default.toml:{number + 1}" in told["summary"]
    assert {"prefill-0", "decode-0", "router"} <= set(told["touches"])


def test_a_remedy_for_a_person_says_what_to_do_and_why_pdctl_does_not() -> None:
    report = judge_bundle(STALE)
    lead = report.verdict.findings[0]
    stopped = replace(lead.finding, code="PD202", remedy="kill -CONT 12 13")
    verdict = replace(report.verdict, findings=(replace(lead, finding=stopped),))
    with pytest.raises(PdctlError) as told:
        command_of(replace(report, verdict=verdict))
    assert told.value.hint == "It is for a person: kill -CONT 12 13"
    assert any("pdctl does not run that" in line for line in told.value.details)


def test_fix_on_a_fleet_that_is_down_asks_first(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal and without --yes nothing is run."""
    code = main(["diagnose", "--fix"])
    said = capsys.readouterr()
    assert code in (Exit.USAGE, Exit.FINDINGS), said
    assert "Plan: pdctl" in said.out or "is no command" in said.err


def test_watch_looks_again_and_ends_by_ctrl_c(fleet: Path) -> None:
    command = [sys.executable, "-m", "pdctl", "--json", "diagnose", "--watch", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        rounds = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == Exit.INTERRUPTED
    assert rounds[0]["at"] < rounds[1]["at"] and rounds[0]["verdict"] == rounds[1]["verdict"]
