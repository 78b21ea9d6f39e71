"""The end of a unit's log: over rotated files, bounded by bytes and by time, as any login gets it."""

from __future__ import annotations

import base64
import os
import time
import zlib
from pathlib import Path

import pytest

from pdctl.facts.probes.logs import probe_logs


def ask(path: Path, since: float = 0.0, limit: int = 1 << 20) -> dict[str, object]:
    where = {"file": str(path), "service": "", "scope": "system"}
    found: dict[str, object] = probe_logs({"a": where}, since, limit)["a"]
    return found


def text(found: dict[str, object]) -> str:
    return zlib.decompress(base64.b64decode(str(found["text"]))).decode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three files of ten lines each, the oldest an hour old."""
    path = tmp_path / "a.log"
    for number, name in enumerate(("a.log.2", "a.log.1", "a.log")):
        lines = (f"line {number * 10 + n:02d}\n" for n in range(10))
        (tmp_path / name).write_text("".join(lines))
    old = time.time() - 3600
    os.utime(tmp_path / "a.log.2", (old, old))
    return path


def test_rotated_files_are_one_log(log: Path) -> None:
    lines = text(ask(log)).splitlines()
    assert lines == [f"line {n:02d}" for n in range(30)]


def test_what_was_last_written_before_the_window_is_left(log: Path) -> None:
    assert text(ask(log, since=time.time() - 60)).startswith("line 10\n")


def test_a_long_log_is_cut_at_a_line_and_says_so(log: Path) -> None:
    found = ask(log, limit=100)
    lines = text(found).splitlines()
    assert found["cut"] is True and lines[-1] == "line 29" and len(lines) == 12
    assert all(line.startswith("line ") for line in lines)


def test_no_log_says_why(tmp_path: Path) -> None:
    assert ask(tmp_path / "none.log")["missing"] == f"there is no {tmp_path / 'none.log'}"
