"""`python -m pdctl.units.keeper UNITFILE`: supervise one unit where there is no systemd.

One keeper per unit, held by a lock file. It starts the process in a session of its own, restarts it on
failure within a burst limit, listens to sd_notify and feeds the watchdog, rotates the log, and writes
what is true to run/NAME.json. SIGTERM stops the unit: SIGTERM to the process, SIGKILL to the whole
session after the stop timeout. Exit 0 when the unit ended, 3 when another keeper has it.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from pdctl import procs
from pdctl.units import numa
from pdctl.units.envfile import parse_env
from pdctl.units.logfile import STARTED, LogFile
from pdctl.units.notify import NotifySocket, remove_socket
from pdctl.units.record import Record, orphans, read_record
from pdctl.units.spec import UnitSpec

ALREADY_KEPT = 3
TICK = 0.5
# A unit's environment is its env file and these; not whatever the operator's shell happened to hold.
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"),
    "LD_LIBRARY_PATH",
)


class Keeper:
    def __init__(self, unit_file: Path, spec: UnitSpec) -> None:
        self.unit_file = unit_file
        self.spec = spec
        self.run_file = Path(spec.run)
        self.log = LogFile(spec.log, spec.log_limit, spec.log_keep)
        self.notify = NotifySocket()
        self.stopping = False
        self.more = 0.0  # until when the process has asked to be given to start or to stop, monotonic
        self.child: subprocess.Popen[bytes] | None = None
        self.record = Record(spec.name, str(unit_file), since=time.time())
        self.record.keeper_pid, self.record.keeper_start = os.getpid(), procs.start_time(os.getpid())
        self.record.notify_dir = self.notify.folder
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.notify.socket, selectors.EVENT_READ)
        self._wake_on_signals()

    def _wake_on_signals(self) -> None:
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._wake = read
        self._selector.register(read, selectors.EVENT_READ)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def set(self, state: str, reason: str = "") -> None:
        if state != self.record.state:
            self.record.since = time.time()
        self.record.state, self.record.reason = state, reason
        self.record.write(self.run_file)

    def keep(self) -> None:
        """Until the unit is stopped, ends well, or may not be restarted."""
        while True:
            why = self._life()
            if self.stopping:
                return self.set("inactive", "stopped")
            if why == "" and self.record.exit_code == 0:
                return self.set("inactive", "ended by itself")
            why = why or self._ending()
            self.log.note(f"{self.spec.name}: {why}")
            final = self._final(why)
            if final:
                self.log.note(f"{self.spec.name}: failed: {final}")
                return self.set("failed", final)
            self.set("restarting", why)
            self._pause(self.spec.restart_delay)
            if self.stopping:
                return self.set("inactive", "stopped")
            self.record.restarts += 1

    def _ending(self) -> str:
        if self.record.exit_signal is not None:
            return f"ended by signal {self.record.exit_signal}"
        return f"ended with exit code {self.record.exit_code}"

    def _final(self, why: str) -> str:
        """Why the unit is not started again; empty when it is."""
        if not self.spec.restart:
            return why
        if self.record.exit_code in self.spec.no_restart:
            return f"{why}, which a restart cannot cure"
        now = time.time()
        # One that lies ahead is of a clock that was set back since.
        recent = [t for t in self.record.failures if now - self.spec.burst_window < t <= now]
        self.record.failures = [*recent, now]
        if len(self.record.failures) >= self.spec.burst:
            count = f"{len(self.record.failures)} failures in {self.spec.burst_window:g} s"
            return f"start-limit: {count}, the last one {why}"
        return ""

    def _life(self) -> str:
        """Start one process and see it to its end. Why the keeper ended it; empty when it ended itself."""
        self.spec = UnitSpec.from_json(self.unit_file.read_text())
        self.record.status = ""
        self.record.child_pid = self.record.child_start = None
        self.record.inputs = self.spec.inputs
        self.set("activating")
        why = self._spawn()
        if self.child is None:
            self.record.exit_code, self.record.exit_signal, self.record.ended_by = 127, None, ""
            return why
        why = self._watch(self.child)
        code = self.child.wait()
        # Ranks and other descendants must not outlive the process that answers for them.
        procs.kill_all(self.child.pid, self.record.mark, 10.0)
        self.record.exit_code, self.record.exit_signal = (code, None) if code >= 0 else (None, -code)
        self.record.ended_by = why
        self.record.child_pid = self.record.child_start = None
        return why

    def _spawn(self) -> str:
        spec = self.spec
        self.child = None
        out = self.log.open()
        try:
            env = {k: os.environ[k] for k in INHERITED if k in os.environ} | spec.env
            env |= parse_env(Path(spec.env_file).read_text())
            env[procs.MARK] = self.record.mark
            if spec.notify:
                env["NOTIFY_SOCKET"] = self.notify.path
            if spec.watchdog:
                env["WATCHDOG_USEC"] = str(int(spec.watchdog * 1e6))
            bound = numa.bind(spec.argv, spec.numa)
            if bound.note:
                self.log.note(f"{spec.name}: {bound.note}")
            self.child = subprocess.Popen(
                bound.argv,
                preexec_fn=bound.before,
                env=env,
                cwd=spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        except numa.NoNode as error:
            return f"cannot be started: {error}"
        except OSError as error:
            return f"cannot be started: {error.filename or spec.argv[0]}: {error.strerror}"
        finally:
            os.close(out)
        self.record.child_pid = self.child.pid
        self.record.child_start = procs.start_time(self.child.pid)
        self.record.started_at = time.time()
        self.log.note(f"{spec.name} {STARTED} {self.child.pid}")
        self.set("activating" if spec.notify else "active")
        return ""

    def _watch(self, child: subprocess.Popen[bytes]) -> str:
        started = fed = time.monotonic()
        self.more, killed = 0.0, ""
        stop_at: float | None = None
        while child.poll() is None:
            self._wait(TICK)
            now = time.monotonic()
            if self._listen():
                fed = now
            if self.stopping and stop_at is None:
                stop_at = now + self.spec.stop_timeout
                self.set("deactivating", "stopping")
                child.terminate()
            if stop_at is not None:
                late = now >= max(stop_at, self.more)
                killed = f"still ran {self.spec.stop_timeout:g} s after SIGTERM" if late else ""
            elif self.record.state == "activating" and now >= max(
                started + self.spec.start_timeout, self.more
            ):
                killed = f"not ready after {self.spec.start_timeout:g} s"
            elif self.record.state == "active" and 0 < self.spec.watchdog <= now - fed:
                killed = f"watchdog: no sign of life for {self.spec.watchdog:g} s"
            if killed:
                self.log.note(f"{self.spec.name}: {killed}; killing it")
                procs.kill_all(child.pid, self.record.mark, 10.0)
                break
        self._listen()
        return killed

    def _listen(self) -> bool:
        """Take in notifications; True when one of them counts as a sign of life."""
        sign = ready = changed = False
        for key, value in self.notify.read():
            if key == "READY" and value == "1":
                sign = ready = True
            elif key == "WATCHDOG" and value == "1":
                sign = True
            elif key == "EXTEND_TIMEOUT_USEC" and value.isdecimal():
                self.more = time.monotonic() + int(value) / 1e6
            elif key == "STATUS" and value != self.record.status:
                self.record.status, changed = value, True
            elif key == "STOPPING" and value == "1" and not self.stopping:
                self.record.reason, changed = "it is stopping by itself", True
        # What came together is written together: nobody reads a ready unit without the status it gave.
        if ready and self.record.state == "activating":
            self.set("active", self.record.reason)
        elif changed:
            self.record.write(self.run_file)
        return sign

    def _wait(self, seconds: float) -> None:
        """Until a signal, a notification or the time is over; the log is looked after meanwhile."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj == self._wake:
                os.read(self._wake, 4096)
        self.log.rotate()

    def _pause(self, seconds: float) -> None:
        """The whole time, whatever arrives meanwhile; cut short only by a stop."""
        end = time.monotonic() + seconds
        while not self.stopping and (left := end - time.monotonic()) > 0:
            self._wait(left)
            self.notify.read()


def lock_unit(run_file: Path) -> int | None:
    """The held lock's descriptor, holding this pid and its start time; None when another keeper has it."""
    run_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(run_file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()} {procs.start_time(os.getpid())}\n".encode(), 0)
    return fd


def _clean_up(before: Record, log: LogFile) -> None:
    """What a keeper that was killed left behind: its processes and its socket."""
    if before.child_pid is not None and orphans(before):
        log.note(f"{before.unit}: killing what an earlier keeper left behind")
        procs.kill_all(before.child_pid, before.mark, 10.0)
    remove_socket(before.notify_dir)


def main(unit_file: Path) -> int:
    spec = UnitSpec.from_json(unit_file.read_text())
    if lock_unit(Path(spec.run)) is None:
        return ALREADY_KEPT
    before = read_record(Path(spec.run))
    keeper = Keeper(unit_file, spec)
    if before is not None:
        _clean_up(before, keeper.log)
    try:
        keeper.keep()
    finally:
        keeper.notify.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
