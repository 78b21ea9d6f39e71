"""Facts of real processes: stopped, running, gone, its environment, what a stop leaves behind."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import PdctlError, UnreachableError
from pdctl.facts import leftovers, ports, process
from pdctl.facts.ask import Answers
from pdctl.facts.collect import collect, unit_of
from pdctl.facts.missing import Missing
from pdctl.facts.process import Process
from pdctl.facts.unit import meaning
from pdctl.units.spec import UnitStatus

CHILD = (
    "import subprocess,sys,time; p=subprocess.Popen(['sleep','60']); print('up',flush=True); time.sleep(60)"
)
Tell = Callable[..., Any]
Until = Callable[..., None]


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    own = {"PD_DRAIN_TIMEOUT": "7", "SECRET": "x", "VLLM_API_KEY": "hush", "SGLANG_X": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **own},
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def seen(tell: Tell, pid: int) -> Process:
    found = process.parse(pid, tell("processes", pids=[pid]))
    assert isinstance(found, Process)
    return found


def test_a_running_process_with_its_child_and_variables(
    parent: subprocess.Popen[str], tell: Tell, until: Until
) -> None:
    # Between fork and exec the child has no command line of its own yet.
    until(lambda: all(c.command == "sleep 60" for c in seen(tell, parent.pid).children), "the child's exec")
    facts = seen(tell, parent.pid)
    assert facts.stopped == ()
    assert [c.command for c in facts.children] == ["sleep 60"]
    assert isinstance(facts.environ, dict)
    assert facts.environ["PD_DRAIN_TIMEOUT"] == "7" and facts.environ["SGLANG_X"] == "1"
    assert "SECRET" not in facts.environ
    assert facts.family == {parent.pid, facts.children[0].pid}


def test_a_process_that_stays_stopped_is_told_from_one_stopped_by_turns(
    parent: subprocess.Popen[str], tell: Tell
) -> None:
    os.kill(parent.pid, signal.SIGSTOP)
    still = seen(tell, parent.pid)
    assert (still.stopped, still.ran) == ((parent.pid,), ())
    go_on = threading.Timer(0.8, os.kill, (parent.pid, signal.SIGCONT))  # the tool needs 0.3 s to start
    go_on.start()
    turns = seen(tell, parent.pid)
    go_on.join()
    assert (turns.stopped, turns.ran) == ((), (parent.pid,))


def test_a_stopped_process_that_is_killed_did_not_go_on(parent: subprocess.Popen[str], tell: Tell) -> None:
    """An engine's watchdog ends a frozen rank while it is looked at."""
    os.kill(parent.pid, signal.SIGSTOP)
    killed = threading.Timer(0.8, os.kill, (parent.pid, signal.SIGKILL))
    killed.start()
    facts = seen(tell, parent.pid)
    killed.join()
    assert (facts.stopped, facts.ran) == ((parent.pid,), ())


def test_a_secret_is_shown_as_a_digest_that_can_be_compared(
    parent: subprocess.Popen[str], tell: Tell
) -> None:
    environ = seen(tell, parent.pid).environ
    assert isinstance(environ, dict) and "hush" not in str(environ)
    assert process.shown({"VLLM_API_KEY": "hush"}) == {"VLLM_API_KEY": environ["VLLM_API_KEY"]}
    assert process.shown({"VLLM_API_KEY": "other"}) != {"VLLM_API_KEY": environ["VLLM_API_KEY"]}
    assert process.shown({"PD_FLEET_TOKEN_FILE": "/x"}) == {"PD_FLEET_TOKEN_FILE": "/x"}


def test_the_start_is_the_systems_own(parent: subprocess.Popen[str], tell: Tell) -> None:
    import psutil

    theirs = psutil.Process(parent.pid).create_time()
    # psutil counts from a boot time that the kernel rounds to a second.
    assert abs(seen(tell, parent.pid).started_at - theirs) < 1.5


def test_a_stopped_child_and_parent_are_named(
    parent: subprocess.Popen[str], tell: Tell, until: Until
) -> None:
    child = seen(tell, parent.pid).children[0].pid
    os.kill(child, signal.SIGSTOP)
    until(lambda: seen(tell, parent.pid).stopped == (child,), "the child is stopped")
    os.kill(parent.pid, signal.SIGSTOP)
    until(lambda: set(seen(tell, parent.pid).stopped) == {parent.pid, child}, "both are stopped")


def test_a_process_that_is_gone_and_one_nobody_collected_say_so(tell: Tell, until: Until) -> None:
    gone = subprocess.Popen(["true"])
    until(lambda: b") Z " in Path(f"/proc/{gone.pid}/stat").read_bytes(), "it has ended")
    assert "not collected" in str(process.parse(gone.pid, tell("processes", pids=[gone.pid])))
    gone.wait()
    found = process.parse(gone.pid, tell("processes", pids=[gone.pid]))
    assert isinstance(found, Missing) and "gone" in found.reason


def stopped(print_: leftovers.Footprint, *ports: int) -> leftovers.Stopped:
    return leftovers.Stopped("decode-0", "127.0.0.1", ports, print_)


def left(tell: Tell, unit: leftovers.Stopped) -> str:
    return leftovers.first_left(tell("left", **leftovers.left_request([unit])["left"])["decode-0"])


def test_leftovers_name_the_process_then_the_port(parent: subprocess.Popen[str], tell: Tell) -> None:
    rows = tell("footprint", **leftovers.footprint_request([parent.pid])["footprint"])
    footprint = leftovers.parse_footprint(parent.pid, rows)
    assert len(footprint.processes) == 2
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert "process" in left(tell, stopped(footprint, port))
        said = left(tell, stopped(leftovers.Footprint(), port))
        assert said.startswith(f"port {port}, held by pid {os.getpid()} of ")
    assert left(tell, stopped(leftovers.Footprint(), port)) == ""


def test_a_reused_pid_is_not_the_old_life(parent: subprocess.Popen[str], tell: Tell) -> None:
    footprint = leftovers.Footprint(processes=((parent.pid, 1),))
    assert left(tell, stopped(footprint)) == ""


def test_shared_memory_with_a_name_is_seen_and_missed(tell: Tell, tmp_path: Path) -> None:
    path = Path("/dev/shm") / f"pdctl-test-{os.getpid()}"
    path.write_bytes(b"\0" * mmap.PAGESIZE)
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
            rows = tell("footprint", **leftovers.footprint_request([os.getpid()])["footprint"])
        footprint = leftovers.parse_footprint(os.getpid(), rows)
        assert str(path) in footprint.shm
        only = leftovers.Footprint(shm=(str(path),))
        assert left(tell, stopped(only)) == f"shared memory {path}"
    finally:
        path.unlink()
    assert left(tell, stopped(only)) == ""


def test_the_proof_says_what_it_could_not_see() -> None:
    blind = leftovers.Footprint(processes=((1, 2),), shm=("/dev/shm/x",))
    assert "GPU memory not observable" in leftovers.proof(stopped(blind, 80), "cuda")
    assert "1 processes gone, ports 80 free, 1 shared-memory files gone" in leftovers.proof(
        stopped(blind, 80), None
    )
    held = leftovers.Footprint(gpus={"GPU-1": 100, "GPU-2": 20})
    assert "120 MiB on 2 GPUs free" in leftovers.proof(stopped(held), "cuda")


def test_a_port_is_free_taken_or_not_ours_to_bind(tell: Tell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        wanted = [["127.0.0.1", taken], ["198.51.100.7", 80]]
        (one, two) = ports.parse(tell("ports", wanted=wanted))  # type: ignore[misc]
    assert not one.free and one.holders[0].pid == os.getpid()
    assert one.strangers([os.getpid()]) == () and one.strangers([1_000_000]) == one.holders
    assert one.strangers([os.getppid()]) == (), "a child of the unit's process is the unit"
    assert "no interface" in two.words
    (free,) = ports.parse(tell("ports", wanted=[["127.0.0.1", taken]]))  # type: ignore[misc]
    assert free.free and free.words == "free"


def test_exit_codes_are_words() -> None:
    assert "model" in meaning(74) and "SIGKILL" in meaning(-9) and "SIGKILL" in meaning(137)
    assert meaning(None) == "no exit code was kept"


def test_unit_states_and_how_the_last_life_ended() -> None:
    assert unit_of(UnitStatus("x", "restarting", exit_signal=9)).state == "backoff"
    assert unit_of(UnitStatus("x", "inactive")).wanted is False
    assert unit_of(UnitStatus("x", "active", exit_code=71)).last_end() == "exit code 71: a rank process died"
    killed = UnitStatus("x", "active", exit_signal=9, ended_by="watchdog: no sign of life for 30 s")
    assert unit_of(killed).last_end() == "killed by its supervisor (watchdog: no sign of life for 30 s)"


class Units:
    """A backend that fails."""

    def __init__(self, error: PdctlError) -> None:
        self.error = error

    def status(self, names: object) -> object:
        raise self.error


def test_a_host_that_is_away_is_missing_whole() -> None:
    def ask(request: object) -> Answers:
        raise AssertionError("it was just seen to be away")

    away = Units(UnreachableError("gone", "The host is away."))
    units, answers = collect(away, ask, ["a"], {"clock": {}})  # type: ignore[arg-type]
    assert isinstance(units["a"].unit, Missing) and "away" in units["a"].unit.reason
    assert isinstance(answers.of("clock"), Missing)


def test_a_backend_that_fails_hides_no_other_fact() -> None:
    def ask(request: object) -> Answers:
        return Answers({"clock": 5.0}, {}, 0.0, 0.0)

    broken = Units(PdctlError("bad", "The unit files are damaged."))
    units, answers = collect(broken, ask, ["a"], {"clock": {}})  # type: ignore[arg-type]
    assert "damaged" in str(units["a"].process)
    assert answers.of("clock") == 5.0
