"""docs/bundle.md names every key, and its example is judged as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pdctl.bundle.told import ChangeTable, EdgeTable, HostTable, PartyTable, Told
from pdctl.flows.diagnose import judge_bundle

PAGE = (Path(__file__).parents[3] / "docs" / "bundle.md").read_text()
EXAMPLE = re.compile(r"^`(?P<name>[\w./-]+)`:\n\n```\w*\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("table", [Told, PartyTable, HostTable, EdgeTable, ChangeTable])
def test_every_key_of_bundle_toml_is_told(table: type[PartyTable]) -> None:
    tables = {"parties": "[parties.", "hosts": "[hosts.", "edges": "[[edges]]", "changes": "[[changes]]"}
    missing = [key for key in table.model_fields if tables.get(key, f"`{key}`") not in PAGE]
    assert missing == []


def test_the_example_is_judged_as_the_page_says(tmp_path: Path) -> None:
    for found in EXAMPLE.finditer(PAGE):
        (tmp_path / found["name"]).write_text(found["text"])
    wanted = re.search(r"`diagnose` answers (PD\d{3})", PAGE)
    report = judge_bundle(tmp_path)
    assert wanted and report.verdict.findings[0].finding.code == wanted[1]
