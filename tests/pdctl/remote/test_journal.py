"""A run is kept however it ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.errors import ConfigError, PdctlError
from pdctl.remote.fanout import fan_out
from pdctl.remote.journal import Journal, list_runs, read_run


def test_a_run_with_its_steps_can_be_read_back(tmp_path: Path) -> None:
    with Journal(tmp_path, "deploy") as journal:
        journal.step("local/start/a", "local", "start a", "done", 1.5)
        journal.note("measured", seconds=3.0)
        assert read_run(tmp_path, journal.id).state == "running"
    run = read_run(tmp_path, journal.id)
    assert (run.state, run.command, len(run.steps)) == ("done", "deploy", 2)
    assert run.steps[0]["what"] == "start a"


def test_failed_and_interrupted_runs_are_kept(tmp_path: Path) -> None:
    with pytest.raises(PdctlError), Journal(tmp_path, "deploy"):
        raise PdctlError("x", "It broke.")
    with pytest.raises(KeyboardInterrupt), Journal(tmp_path, "down"):
        raise KeyboardInterrupt
    assert {(r.command, r.state, r.error) for r in list_runs(tmp_path)} == {
        ("deploy", "failed", "It broke."),
        ("down", "interrupted", ""),
    }


def test_a_run_that_was_killed_is_not_called_running(tmp_path: Path) -> None:
    code = "import os, sys\nfrom pathlib import Path\nfrom pdctl.remote.journal import Journal\n"
    code += "Journal(Path(sys.argv[1]), 'deploy'); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=30)
    (run,) = list_runs(tmp_path)
    assert run.state == "died"
    with next(tmp_path.glob("*.jsonl")).open("a") as file:
        file.write('{"kind": "st')
    assert read_run(tmp_path, run.id).state == "died"


def test_an_unknown_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no run x"):
        read_run(tmp_path, "x")


def test_fan_out_keeps_every_outcome() -> None:
    def ask(key: int) -> int:
        if key % 2:
            raise PdctlError("odd", f"{key} is odd.")
        return key * 10

    found = fan_out(range(25), ask)
    assert list(found) == list(range(25))
    assert [v for v in found.values() if isinstance(v, int)] == [k * 10 for k in range(0, 25, 2)]
    assert sum(isinstance(v, PdctlError) for v in found.values()) == 12
    assert fan_out([], ask) == {}
