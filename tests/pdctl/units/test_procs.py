"""What is left of a unit's session is found, also when it has overwritten its environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdctl import procs

# As a server that sets its process title: the beginning of /proc/PID/environ is gone from then on.
WIPED = """
import ctypes, pathlib, sys, time
stat = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
start, end = int(stat[47]), int(stat[48])
environ = pathlib.Path("/proc/self/environ").read_bytes()
ctypes.memset(start, 0, environ.index(b"PDCTL_UNIT=mine") + 16)
pathlib.Path(sys.argv[1]).write_text("wiped")
time.sleep(120)
"""
LEADER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
time.sleep(120)
"""


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not check():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.02)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A session leader with a child whose environment is gone."""
    env = {**os.environ, procs.MARK: "mine"}
    flag = tmp_path / "wiped"
    child = subprocess.Popen(
        [sys.executable, "-c", LEADER, WIPED, str(flag)], env=env, start_new_session=True
    )
    until(flag.exists)
    yield child
    os.killpg(child.pid, signal.SIGKILL) if procs.session_members(child.pid, "mine") else None
    child.wait()


def test_a_process_without_an_environment_is_ended_with_its_session(leader: subprocess.Popen[bytes]) -> None:
    assert len(procs.session_members(leader.pid, "mine")) == 2
    leader.kill()
    leader.wait()
    assert len(procs.session_members(leader.pid, "mine")) == 1
    assert procs.kill_all(leader.pid, "mine", 10.0) == []


def test_it_is_left_alone_where_somebody_else_is_in_that_session(leader: subprocess.Popen[bytes]) -> None:
    assert procs.session_members(leader.pid, "another") == []
