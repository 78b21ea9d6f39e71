"""Incidents survive their writer, stay bounded, and are read while they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.supervisor import incidents as module
from pdctl.supervisor.incidents import Incidents, Moment


def test_what_is_written_is_there_for_another_reader_at_once(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.db"
    store = Incidents(path)
    id = store.begin("a", "a", ["PD501"], "ill", "wedged", at=10.0)
    action = store.act(id, "co-restart", "a", "running", "why", at=11.0)
    reader = Incidents(path, read_only=True)
    (seen,) = reader.recent()
    assert (seen.opened, seen.codes, seen.open, reader.actions(id)[0].outcome) == (
        10.0,
        ("PD501",),
        True,
        "running",
    )
    store.change(id, Moment(12.0, "finding", "pinned"), codes=["PD602"], state="acting", evidence="/b.tar.gz")
    store.ended(action, "done", "so it was")
    store.close(id, "serving", "well", at=20.0)
    (seen,) = reader.recent()
    assert (seen.codes, seen.evidence, seen.closed) == (("PD602", "PD501"), "/b.tar.gz", 20.0)
    assert [m.what for m in seen.timeline] == ["opened", "finding", "closed"]
    assert path.stat().st_mode & 0o77 == 0


def test_a_long_timeline_keeps_how_it_began_and_how_it_is(tmp_path: Path) -> None:
    store = Incidents(tmp_path / "supervisor.db")
    id = store.begin("a", "a", [], "ill", "first", at=0.0)
    for n in range(module.MOMENTS + 50):
        store.change(id, Moment(float(n), "note", str(n)))
    found = store.one(id)
    assert found is not None and len(found.timeline) <= module.MOMENTS
    assert (found.timeline[0].text, found.timeline[-1].text) == ("first", str(module.MOMENTS + 49))


def test_old_ones_are_forgotten_and_open_ones_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    store = Incidents(tmp_path / "supervisor.db")
    first = store.begin("b", "b", [], "ill", "open for ever")
    for _ in range(6):
        id = store.begin("a", "a", [], "ill", "x")
        store.act(id, "abort", "a", "done")
        store.close(id, "serving", "well")
    assert [i.id for i in store.recent()] == [first, 7, 6, 5]
    assert len(store.actions()) == 3
