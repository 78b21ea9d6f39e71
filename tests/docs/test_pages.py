"""The generated reference pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.settings import SETTINGS
from tests.docs.pages import PAGES, contract_page, settings, stale

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name):
    assert (DOCS / name).is_file(), f"docs/{name} is missing; run `make docs`"
    assert (DOCS / name).read_text() == PAGES[name]().rstrip() + "\n", "run `make docs`"


def test_a_changed_page_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.docs.pages.PAGES", {"a.md": lambda: "new", "b.md": lambda: "same"})
    (tmp_path / "a.md").write_text("old\n")
    (tmp_path / "b.md").write_text("same\n")
    assert stale(tmp_path) == {"a.md": "new\n"}


def test_every_setting_and_every_required_key_is_on_its_page():
    text = settings()
    assert all(f"`{s.env}`" in text and s.reason in text for s in SETTINGS)
    assert "`snapshot_age_s` | yes" in contract_page()
