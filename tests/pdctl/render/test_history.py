"""`pdctl history RUN` as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.remote.journal import Journal
from pdctl.remote.journal_read import read_run
from pdctl.render.history import show_run


def test_a_note_of_parts_is_left_to_json_and_the_others_are_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Journal(tmp_path / "journal.db", "deploy") as journal:
        journal.note("places", hosts={"h1": {"root": "/opt/pdctl/f"}})
        journal.note("deployment", id="20261130-203001-5963")
    show_run(read_run(tmp_path / "journal.db", journal.id))
    said = capsys.readouterr().out
    assert "note: deployment: id 20261130-203001-5963\n" in said and "places" not in said
