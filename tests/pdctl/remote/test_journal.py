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


def test_a_run_that_reports_its_failure_is_not_called_done(tmp_path: Path) -> None:
    with Journal(tmp_path, "restart --co a") as journal:
        journal.ends("interrupted", "start decodes: interrupted")
    assert [(r.state, r.error) for r in list_runs(tmp_path)] == [
        ("interrupted", "start decodes: interrupted")
    ]


def test_a_damaged_journal_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "20200101-000000-aaaa.jsonl").write_text('{}\n[1]\n"x"\n{"kind": "run", "command": "down"}\n')
    assert [(r.command, r.state) for r in list_runs(tmp_path)] == [("down", "running")]


def test_a_hung_ask_does_not_hold_up_an_interrupt_or_the_exit() -> None:
    code = "import signal, time\nfrom pdctl.remote.fanout import fan_out\n"
    code += "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
    code += "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
    code += "try: fan_out([1, 2], lambda key: time.sleep(60))\nexcept KeyboardInterrupt: print('left')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (found.stdout, found.stderr) == ("left\n", "")


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
