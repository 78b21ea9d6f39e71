"""The catalogue keeps its own promises: codes, pages, needs, and the document's contract."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pdctl import contracts, diagnose
from pdctl.adapters.picture import Reach
from pdctl.adapters.signs import NAMES
from pdctl.diagnose.docs import page, paragraphs, render
from pdctl.diagnose.needs import NEEDS
from pdctl.diagnose.report import document, make
from pdctl.diagnose.rule import Rule
from pdctl.diagnose.rules import BY_CODE, CATALOGUE
from pdctl.diagnose.runner import FAILED, run


def test_every_rule_file_is_in_the_catalogue_in_order() -> None:
    folder = Path(diagnose.__file__).parent / "rules"
    files = sorted(p.stem[:5].upper() for p in folder.rglob("pd*.py"))
    codes = [r.code for r in CATALOGUE]
    assert codes == files == sorted(set(codes))


def test_a_folder_of_rules_is_one_hundred() -> None:
    folder = Path(diagnose.__file__).parent / "rules"
    for family in (p for p in folder.iterdir() if p.is_dir()):
        assert len({p.stem[:3] for p in family.glob("pd*.py")}) <= 1, family


def test_every_sign_serves_a_rule() -> None:
    """A sign that no rule asks for is a line that is searched for in vain."""
    folder = Path(diagnose.__file__).parent
    asked = set(re.findall(r'"([a-z_]+\.[a-z_0-9]*)"', "".join(p.read_text() for p in folder.rglob("*.py"))))
    families = {name.split(".")[0] + "." for name in NAMES} & asked
    assert {n for n in NAMES if n not in asked and n.split(".")[0] + "." not in families} == set()


@pytest.mark.parametrize("rule", CATALOGUE, ids=lambda r: r.code)
def test_page_has_its_three_parts_and_known_needs(rule: Rule) -> None:
    text = page(rule)
    for part in ("What it looks like", "What else it could be", "What to do"):
        assert f"**{part}.**" in text
    assert len(paragraphs(rule)) >= 4
    assert set(rule.needs) <= NEEDS.keys()
    codes = {r.code for r in CATALOGUE}
    assert set(rule.echo_of) <= codes - {rule.code}
    assert set(re.findall(r"PD\d{3}\b", rule.page)) <= codes


def test_manual_lists_every_rule_once() -> None:
    text = render()
    assert [text.count(f"## {r.code}:") for r in CATALOGUE] == [1] * len(CATALOGUE)


def test_document_conforms_while_everything_is_broken(scene: Any) -> None:
    for name in ("prefill-0", "decode-0", "router"):
        scene.reach[name] = Reach.TIMED_OUT
    doc = document(make(scene.facts(), 2.0))
    assert contracts.faults("diagnose", doc) == []
    assert {s["code"] for s in doc["rules"]["skipped"]} >= {"PD602", "PD601"}
    assert "PD602" not in doc["rules"]["run"]


def test_document_conforms_on_a_healthy_fleet(scene: Any) -> None:
    doc = document(make(scene.facts(), 1.0))
    assert contracts.faults("diagnose", doc) == []
    assert doc["verdict"]["status"] == "healthy" and doc["verdict"]["leading"] is None


def test_a_rule_that_fails_is_told_and_takes_no_finding_of_another_with_it(scene: Any) -> None:
    def broken(facts: Any) -> Any:
        raise KeyError("gone")

    rules = [replace(CATALOGUE[0], needs=(), check=broken), BY_CODE["PD201"]]
    scene.reach["decode-0"] = Reach.REFUSED
    ran = run(scene.facts(), rules)
    assert [s.reason for s in ran.skipped] == [f"{FAILED}: KeyError: 'gone'"]
    assert ran.run == ("PD201",) and ran.findings
