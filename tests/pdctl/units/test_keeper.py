"""What the keeper promises, on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from pdctl import procs
from pdctl.facts.collect import unit_of
from pdctl.units import ctl
from pdctl.units.keeper import Keeper

SLEEPS = """
tell("READY=1\\nSTATUS=at work")
while True: time.sleep(0.1)
"""


def _wait_gone(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while procs.start_time(pid) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def said(bench, name: str) -> list[str]:
    """The process's own lines."""
    return [line for line in bench.log(name).splitlines() if "[keeper]" not in line]


def test_a_unit_is_active_once_it_says_so_and_stops_on_sigterm(bench) -> None:
    bench.install("one", "time.sleep(0.3)\nprint(os.environ['GREETING'])" + SLEEPS)
    assert bench.units.start("one").state == "activating"
    status = bench.until("one", lambda s: s.state == "active")
    assert status.status == "at work"
    assert status.inputs == "digest-1"
    assert 'hello "you" \\ there' in bench.log("one")
    assert bench.units.stop("one").state == "inactive"
    assert _wait_gone(status.pid)
    assert bench.units.status(["one"])["one"].keeper_pid is None


def test_the_environment_is_the_env_file_not_the_shells(bench, monkeypatch) -> None:
    monkeypatch.setenv("PD_STRAY", "1")
    bench.install("clean", "print(sorted(k for k in os.environ if k.startswith('PD_')))" + SLEEPS)
    bench.units.start("clean")
    bench.until("clean", lambda s: s.state == "active")
    assert said(bench, "clean")[0] == "[]"


def test_starting_twice_keeps_one_process(bench) -> None:
    bench.install("twice", SLEEPS)
    first = bench.units.start("twice").pid
    assert bench.units.start("twice").pid == first
    direct = subprocess.run(
        [sys.executable, "-m", "pdctl.units.keeper", bench.paths.unit("twice")], timeout=20
    )
    assert direct.returncode == 3
    assert bench.units.status(["twice"])["twice"].pid == first


def test_a_failure_is_restarted_with_the_newest_inputs(bench) -> None:
    script = """
    tell("READY=1")
    marker = os.environ["PDCTL_UNIT"] + ".once"
    if not os.path.exists(marker):
        open(marker, "w").close(); time.sleep(0.3); sys.exit(9)
    """
    bench.install("again", script + SLEEPS.replace("\n", "\n    "), restart_delay=0.5)
    bench.units.start("again")
    bench.install("again", script + SLEEPS.replace("\n", "\n    "), inputs="digest-2")
    status = bench.until("again", lambda s: s.restarts == 1 and s.state == "active")
    assert status.inputs == "digest-2"
    assert "ended with exit code 9" in bench.log("again")


def test_a_crash_loop_ends_in_a_named_failure(bench) -> None:
    bench.install("loop", "sys.exit(5)", burst=3)
    bench.units.start("loop")
    status = bench.until("loop", lambda s: s.state == "failed")
    assert "start-limit: 3 failures" in status.reason
    assert status.exit_code == 5
    assert status.restarts == 2
    # A person who starts it again gets a fresh count.
    assert bench.units.start("loop").state in ("activating", "restarting", "failed")


def test_failures_dated_by_a_clock_that_was_ahead_are_no_loop() -> None:
    spec = SimpleNamespace(restart=True, no_restart=(), burst=3, burst_window=60.0)

    def final(*ago: float) -> str:
        record = SimpleNamespace(exit_code=1, failures=[time.time() - seconds for seconds in ago])
        return Keeper._final(SimpleNamespace(spec=spec, record=record), "ended")  # type: ignore[arg-type]

    assert final(-7200.0, -7190.0, -7180.0) == ""
    assert final(61.0, 62.0) == "" and final(20.0, 10.0).startswith("start-limit: 3 failures")


def test_a_wrong_configuration_is_not_restarted(bench) -> None:
    for code in (2, 74):
        bench.install(f"exit-{code}", f"print('bad'); sys.exit({code})")
        bench.units.start(f"exit-{code}")
        status = bench.until(f"exit-{code}", lambda s: s.state == "failed")
        assert status.restarts == 0
        assert f"exit code {code}, which a restart cannot cure" in status.reason


def test_a_missing_program_is_a_sentence(bench) -> None:
    bench.install("absent", "", argv=("/no/such/program",), burst=1)
    status = bench.units.start("absent")
    status = bench.until("absent", lambda s: s.state == "failed")
    assert "/no/such/program: No such file or directory" in status.reason


def test_silence_past_the_watchdog_ends_in_a_restart(bench) -> None:
    script = """
    tell("READY=1")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        tell("WATCHDOG=1"); time.sleep(0.1)
    print("fed for 1.5 s")
    time.sleep(60)
    """
    bench.install("dog", script, watchdog=1.0)
    bench.units.start("dog")
    status = bench.until("dog", lambda s: s.restarts == 1)
    assert "fed for 1.5 s" in bench.log("dog")
    assert "watchdog: no sign of life for 1 s" in bench.log("dog")
    status = bench.units.status(["dog"])["dog"]
    assert (status.exit_signal, status.ended_by) == (9, "watchdog: no sign of life for 1 s")
    assert status.state in ("activating", "active")


def test_a_unit_that_is_never_ready_fails_at_its_start_timeout(bench) -> None:
    bench.install("mute", "time.sleep(60)", start_timeout=0.5, burst=1)
    bench.units.start("mute")
    assert "not ready after 0.5 s" in bench.until("mute", lambda s: s.state == "failed").reason


def test_one_that_asks_for_time_gets_it_while_it_asks(bench) -> None:
    """As systemd does with EXTEND_TIMEOUT_USEC, on its way up and on its way down."""
    script = """
    def slowly():
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            tell("EXTEND_TIMEOUT_USEC=1000000"); time.sleep(0.1)
    def leave(number, frame):
        slowly(); print("left in its own time"); sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    slowly()
    """
    bench.install(
        "slow", script + SLEEPS.replace("\n", "\n    "), start_timeout=0.5, stop_timeout=0.5, burst=1
    )
    bench.units.start("slow")
    bench.until("slow", lambda s: s.state == "active")
    assert bench.units.stop("slow").state == "inactive"
    assert "left in its own time" in bench.log("slow") and "killing it" not in bench.log("slow")


def test_one_that_asks_for_time_and_then_no_more_is_killed(bench) -> None:
    script = """
    signal.signal(signal.SIGTERM, lambda number, frame: tell("EXTEND_TIMEOUT_USEC=1000000"))
    """
    bench.install("slow", script + SLEEPS.replace("\n", "\n    "), stop_timeout=0.5)
    bench.units.start("slow")
    bench.until("slow", lambda s: s.state == "active")
    assert bench.units.stop("slow").state == "inactive"
    assert "still ran 0.5 s after SIGTERM; killing it" in bench.log("slow")


def test_stop_kills_what_ignores_sigterm_with_all_its_children(bench) -> None:
    script = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    print(child.pid)
    """
    bench.install("deaf", script + SLEEPS.replace("\n", "\n    "), stop_timeout=0.5)
    bench.units.start("deaf")
    status = bench.until("deaf", lambda s: s.state == "active")
    grandchild = int(said(bench, "deaf")[0])
    assert bench.units.stop("deaf").state == "inactive"
    assert _wait_gone(status.pid) and _wait_gone(grandchild)


def test_children_left_by_a_process_that_dies_are_ended(bench) -> None:
    script = """
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid); tell("READY=1"); time.sleep(0.2); os._exit(3)
    """
    bench.install("leaves", script, burst=1)
    bench.units.start("leaves")
    bench.until("leaves", lambda s: s.state == "failed")
    assert _wait_gone(int(said(bench, "leaves")[0]))


def test_a_killed_keeper_is_told_and_cleaned_up(bench) -> None:
    bench.install("orphan", SLEEPS)
    bench.units.start("orphan")
    before = bench.until("orphan", lambda s: s.state == "active")
    os.kill(before.keeper_pid, signal.SIGKILL)
    status = bench.until("orphan", lambda s: s.state == "orphaned")
    assert status.pid == before.pid
    assert "unsupervised" in status.reason
    bench.units.start("orphan")
    after = bench.until("orphan", lambda s: s.state == "active")
    assert after.pid != before.pid
    assert _wait_gone(before.pid)


def test_an_end_that_nobody_saw_is_not_told_by_the_one_before_it(bench) -> None:
    script = """
    marker = os.environ["PDCTL_UNIT"] + ".once"
    if not os.path.exists(marker):
        open(marker, "w").close(); sys.exit(70)
    """
    bench.install("twice", script + SLEEPS.replace("\n", "\n    "))
    bench.units.start("twice")
    again = bench.until("twice", lambda s: s.restarts == 1 and s.state == "active")
    assert again.exit_code == 70
    os.kill(again.keeper_pid, signal.SIGSTOP)
    os.kill(again.pid, signal.SIGKILL)
    seen = bench.until("twice", lambda s: s.pid is None)
    assert (seen.state, seen.ended()) == ("active", "")
    assert (unit_of(seen).state, unit_of(seen).exit) == ("backoff", None), "nobody is told that it runs"
    os.kill(again.keeper_pid, signal.SIGKILL)
    gone = bench.until("twice", lambda s: s.state == "failed")
    assert (gone.ended(), gone.wanted) == ("", True)


def test_a_failed_unit_that_is_stopped_stays_failed_and_is_not_wanted(bench) -> None:
    bench.install("bad", "sys.exit(74)")
    bench.units.start("bad")
    assert bench.until("bad", lambda s: s.state == "failed").wanted
    stopped = bench.units.stop("bad")
    assert (stopped.state, stopped.exit_code, stopped.wanted) == ("failed", 74, False)
    bench.units.start("bad")
    assert bench.until("bad", lambda s: s.state == "failed").wanted


def test_stop_ends_an_orphan(bench) -> None:
    bench.install("left", SLEEPS, stop_timeout=0.5)
    bench.units.start("left")
    status = bench.until("left", lambda s: s.state == "active")
    os.kill(status.keeper_pid, signal.SIGKILL)
    bench.until("left", lambda s: s.state == "orphaned")
    socket = Path(json.loads(Path(bench.paths.run("left")).read_text())["notify_dir"])
    assert socket.is_dir()
    assert bench.units.stop("left").state == "inactive"
    assert not socket.exists()
    assert _wait_gone(status.pid)


def test_stop_ends_a_unit_whose_keeper_is_frozen(bench, monkeypatch) -> None:
    monkeypatch.setattr(ctl, "STOP_MARGIN", 0.5)
    bench.install("frozen", SLEEPS, stop_timeout=0.5)
    bench.units.start("frozen")
    status = bench.until("frozen", lambda s: s.state == "active")
    os.kill(status.keeper_pid, signal.SIGSTOP)
    assert ctl.stop(Path(bench.paths.unit("frozen")).parent, "frozen").state == "inactive"
    assert _wait_gone(status.pid) and _wait_gone(status.keeper_pid)


def test_a_stopped_unit_ends_even_when_stopped_by_sigstop(bench) -> None:
    bench.install("stopped", SLEEPS, stop_timeout=0.5)
    bench.units.start("stopped")
    status = bench.until("stopped", lambda s: s.state == "active")
    os.kill(status.pid, signal.SIGSTOP)
    assert bench.units.stop("stopped").state == "inactive"
    assert _wait_gone(status.pid)


def test_a_stop_at_once_waits_for_nothing_and_brings_nothing_back(bench) -> None:
    """By default its stop would take a minute, and one that is killed is started again."""
    bench.install("deaf", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS, stop_timeout=60.0)
    bench.units.start("deaf")
    status = bench.until("deaf", lambda s: s.state == "active")
    began = time.monotonic()
    stopped = bench.units.stop("deaf", at_once=True)
    assert (stopped.state, stopped.restarts, stopped.wanted) == ("inactive", 0, False)
    assert _wait_gone(status.pid) and time.monotonic() - began < 55


def test_a_reused_pid_is_not_taken_for_the_unit(bench) -> None:
    """The record names this test's own process, as after a reboot: it is neither shown nor killed."""
    bench.install("stale", SLEEPS)
    bench.units.start("stale")
    bench.until("stale", lambda s: s.state == "active")
    bench.units.stop("stale")
    run = Path(bench.paths.run("stale"))
    record = json.loads(run.read_text())
    record.update(
        state="active", child_pid=os.getpid(), child_start=1, keeper_pid=os.getpid(), keeper_start=1
    )
    run.write_text(json.dumps(record))
    status = bench.units.status(["stale"])["stale"]
    assert (status.state, status.pid) == ("failed", None)
    assert bench.units.stop("stale").state == "inactive"


def test_the_log_stays_bounded(bench) -> None:
    script = """
    tell("READY=1")
    while True:
        print("x" * 1000)
        time.sleep(0.002)
    """
    bench.install("chatty", script, log_limit=50_000, log_keep=2)
    bench.units.start("chatty")
    bench.until("chatty", lambda s: Path(bench.paths.log("chatty") + ".2").exists())
    bench.units.stop("chatty")
    # A second's worth of lines may come between two looks.
    assert Path(bench.paths.log("chatty")).stat().st_size < 1_000_000
    assert not Path(bench.paths.log("chatty") + ".3").exists()
