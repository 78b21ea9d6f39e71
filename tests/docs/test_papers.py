"""The hand-written papers: links lead somewhere, and the tables of exit codes say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.core.errors import Exit as EngineExit
from engine.core.settings import OTHER_ENV
from pdctl.exits import MEANING
from tests.arch.layers import ENGINE, PDCTL_ROWS
from tests.docs.pages import PAGES, WHERE_OTHER

ROOT = Path(__file__).parents[2]
PAPERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/operations.md")


@pytest.mark.parametrize("name", PAPERS)
def test_links_lead_to_files_or_to_generated_pages(name):
    path = ROOT / name
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        target = path.parent / link
        assert target.is_file() or target.name in PAGES, f"{name} links to {link}"


def test_exit_codes_of_pdctl_are_on_the_operations_page():
    text = (ROOT / "docs" / "operations.md").read_text()
    missing = [f"| {int(code)} | {words} |" for code, words in MEANING.items()]
    assert [row for row in missing if row not in text] == []


def test_exit_codes_of_an_engine_are_on_the_operations_page():
    text = (ROOT / "docs" / "operations.md").read_text().partition("## Exit codes of an engine")[2]
    codes = {int(c) for c in re.findall(r"^\| (\d+) \|", text.partition("##")[0], re.MULTILINE)}
    assert codes == {int(code) for code in EngineExit}


def test_the_engine_is_installed_as_the_operations_page_says():
    sources = [path.read_text() for path in (ROOT / "pdctl").rglob("*.py")]
    hints = {hint for text in sources for hint in re.findall(r"pip install [^\"`{}\n]*engine\]'", text)}
    assert len(hints) == 1
    assert hints.pop() in (ROOT / "docs" / "operations.md").read_text()


def test_every_room_is_on_the_architecture_page():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [("pdctl", room) for row in PDCTL_ROWS for room in row] + [("engine", room) for room in ENGINE]
    there = [room for top, room in rooms if (ROOT / top / room).is_dir()]
    assert len(there) > 20
    assert [room for room in there if f"`{room}`" not in text] == []


def test_every_variable_that_is_no_timeout_is_explained():
    assert set(WHERE_OTHER) == set(OTHER_ENV)


@pytest.mark.parametrize("name", PAPERS)
def test_verbs_and_options_that_are_named_exist(name):
    page = PAGES["cli.md"]()
    verbs = set(re.findall(r"^## (pdctl [a-z -]+)$", page, re.MULTILINE))
    options = set(re.findall(r"`(--?[a-z-]+)`", page))
    for said in re.findall(r"`?(pdctl [a-z][^`\n|#]*)", (ROOT / name).read_text()):
        words = said.split()
        if words[1] not in {v.split()[1] for v in verbs}:
            assert "`" + said not in (ROOT / name).read_text(), f"{name} names `{said}`"
            continue
        missing = [w for w in words if re.fullmatch(r"--?[a-z-]+", w) and w not in options]
        assert not missing, f"{name}: `{said}` has no {missing}"
