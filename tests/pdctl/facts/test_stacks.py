"""Stacks and libraries of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.adapters.stacks import parse
from pdctl.facts.probes.process import libraries_of, probe_processes
from pdctl.facts.probes.stacks import probe_stacks


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time\ndef held(): time.sleep(60)\nheld()"])
    yield process
    process.kill()
    process.wait()


def test_no_py_spy_is_said(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdctl.facts.probes.stacks._pyspy", lambda pid: None)
    assert probe_stacks([sleeper.pid]) == {str(sleeper.pid): {"missing": "there is no py-spy"}}


def test_what_py_spy_prints_is_read(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in prints the form of the real one; where the real one is there it is asked as well."""
    tool = tmp_path / "py-spy"
    tool.write_text(
        "#!/bin/sh\n"
        'echo "Process $4: python"\n'
        'echo "Thread $4 (idle): \\"MainThread\\""\n'
        'echo "    held (<string>:2)"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = probe_stacks([sleeper.pid])[str(sleeper.pid)]
    (stack,) = parse(said["text"])
    assert stack.frames == ("held (<string>:2)",) and stack.process.startswith(str(sleeper.pid))


def test_limits_and_libraries_of_a_process(sleeper: subprocess.Popen[bytes]) -> None:
    row = probe_processes([sleeper.pid])[str(sleeper.pid)]
    assert "Max locked memory" in row["limits"]
    assert row["libraries"] == []


def test_transfer_libraries_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = (
        "7f00-7f01 r--p 0 08:01 1 /opt/hpcx/ucx/lib/libucp.so.0.0.0\n"
        "7f01-7f02 r-xp 0 08:01 1 /opt/hpcx/ucx/lib/libucp.so.0.0.0\n"
        "7f02-7f03 r--p 0 08:01 2 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
        "7f03-7f04 r--p 0 08:01 3 /venv/nixl.libs/libucp-3f1a.so.0.0.0\n"
    )
    monkeypatch.setattr("pdctl.facts.probes.process.read_text", lambda path: maps)
    assert libraries_of([1]) == ["/opt/hpcx/ucx/lib/libucp.so.0.0.0", "/venv/nixl.libs/libucp-3f1a.so.0.0.0"]
