"""Facts of real processes: stopped, running, gone, its environment, what a stop leaves behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from pdctl.facts import leftovers
from pdctl.facts.collect import collect, last_end, unit_of
from pdctl.facts.missing import Missing
from pdctl.facts.ports import free, holder
from pdctl.facts.process import Process, probe
from pdctl.facts.unit import meaning
from pdctl.units.spec import UnitStatus

CHILD = (
    "import subprocess,sys,time; p=subprocess.Popen(['sleep','60']); print('up',flush=True); time.sleep(60)"
)


def wait_for(check: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.02)


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "PD_DRAIN_TIMEOUT": "7", "SECRET": "x"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def seen(pid: int) -> Process:
    found = probe(pid)
    assert isinstance(found, Process)
    return found


def test_a_running_process_with_its_child_and_variables(parent: subprocess.Popen[str]) -> None:
    # Between fork and exec the child has no command line of its own yet.
    wait_for(lambda: all(c.command == "sleep 60" for c in seen(parent.pid).children))
    facts = seen(parent.pid)
    assert facts.stopped == ()
    assert [c.command for c in facts.children] == ["sleep 60"]
    assert isinstance(facts.environ, dict)
    assert facts.environ["PD_DRAIN_TIMEOUT"] == "7" and "SECRET" not in facts.environ


def test_a_stopped_child_and_parent_are_named(parent: subprocess.Popen[str]) -> None:
    child = seen(parent.pid).children[0].pid
    os.kill(child, signal.SIGSTOP)
    wait_for(lambda: seen(parent.pid).stopped == (child,))
    os.kill(parent.pid, signal.SIGSTOP)
    wait_for(lambda: set(seen(parent.pid).stopped) == {parent.pid, child})


def test_a_process_that_is_gone_says_so() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    found = probe(process.pid)
    assert isinstance(found, Missing) and "gone" in found.reason


def test_leftovers_name_the_process_then_the_port(parent: subprocess.Popen[str]) -> None:
    footprint = leftovers.before(parent.pid)
    assert len(footprint.processes) == 2
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert "process" in leftovers.left(footprint, "127.0.0.1", [port])
        gone = leftovers.Footprint((), ())
        assert leftovers.left(gone, "127.0.0.1", [port]) == f"port {port}, held by pid {os.getpid()}"
        assert holder(port) == os.getpid() and not free("127.0.0.1", port)
    assert leftovers.left(gone, "127.0.0.1", [port]) == ""


def test_exit_codes_are_words() -> None:
    assert "model" in meaning(74) and "SIGKILL" in meaning(-9) and "SIGKILL" in meaning(137)
    assert meaning(None) == "no exit code was kept"


def test_unit_states_and_the_keepers_last_word() -> None:
    assert unit_of(UnitStatus("x", "restarting", exit_signal=9)).state == "backoff"
    assert unit_of(UnitStatus("x", "inactive")).wanted is False
    lines = ["[keeper] d: ended with exit code 71", "hello", "[keeper] d: ended by signal 9", "up"]
    assert last_end(lines) == -9
    stamped = ["2026-11-29 17:16:31 [keeper] decode-1: ended by signal 9"]
    assert last_end(stamped) == -9
    assert last_end(["nothing"]) is None


def test_a_backend_that_fails_is_missing_not_an_error() -> None:
    from pdctl.errors import UnreachableError

    class Broken:
        def status(self, names: object) -> object:
            raise UnreachableError("gone", "The host is away.")

    found = collect(Broken(), ["a"], local=True)  # type: ignore[arg-type]
    assert isinstance(found["a"].unit, Missing) and "away" in found["a"].unit.reason
