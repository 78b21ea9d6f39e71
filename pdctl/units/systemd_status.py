"""What systemd says of a unit, in the words of UnitStatus."""

from __future__ import annotations

import signal
from typing import Any

from pdctl.units.spec import NEVER_STARTED, UnitStatus

# How systemd writes why a unit is not well (Result=).
_RESULTS = {
    "protocol": "it never said READY=1",
    "timeout": "a deadline passed and it was killed",
    "watchdog": "watchdog: no sign of life",
    "oom-kill": "out of memory: killed by the kernel",
    "start-limit-hit": "start-limit: it was started too often",
    "resources": "systemd could not prepare it: its env file or memory is missing",
    "exec-condition": "a condition of its unit file is not met",
}
# Exit codes that systemd itself gives a process that it could not start (systemd.exec(5)).
_SETUP = {
    200: "its working directory cannot be entered",
    203: "its program cannot be executed",
    205: "its resource limits cannot be set",
    217: "its user does not exist",
    218: "its capabilities cannot be dropped",
    226: "its file system sandbox cannot be made",
    228: "its system call filter cannot be installed",
    242: "its NUMA node cannot be used",
}
_STATES = {"reloading": "active", "maintenance": "inactive"}
_KILLED = ("2", "3")  # ExecMainCode is CLD_KILLED or CLD_DUMPED; 1 is CLD_EXITED


def parse(name: str, raw: dict[str, Any] | None, clock: dict[str, Any]) -> UnitStatus:
    """`raw` is one unit of the host tool's `status`, `clock` the answer that it came in."""
    if raw is None:
        return UnitStatus(name, "missing", "not installed")
    show: dict[str, str] = raw["show"]
    if show["LoadState"] != "loaded":
        said = {"not-found": "its unit file is gone", "masked": "it is masked"}
        return UnitStatus(name, "missing", said.get(show["LoadState"], f"unit file: {show['LoadState']}"))
    pid = int(show["MainPID"]) or None
    code, number = _ended(show, raw)
    state = _state(show)
    return UnitStatus(
        name=name,
        state=state,
        reason=_reason(state, show, raw, code, number),
        status=show["StatusText"] if pid else "",
        pid=pid,
        restarts=int(show["NRestarts"] or 0),
        exit_code=code,
        exit_signal=number,
        since=_unix(show["StateChangeTimestampMonotonic"], clock),
        started_at=_unix(show["ExecMainStartTimestampMonotonic"], clock) if pid else None,
        started_by=_by(show, raw, clock) if pid else "",
        wanted=raw["enabled"],
        inputs=raw["inputs"],
    )


def _state(show: dict[str, str]) -> str:
    if show["SubState"].startswith("auto-restart"):
        return "restarting"
    return _STATES.get(show["ActiveState"], show["ActiveState"])


def _ended(show: dict[str, str], raw: dict[str, Any]) -> tuple[int | None, int | None]:
    """Exit code and signal of the process that ended last; one of them at most."""
    if show["ExecMainCode"] == "0":  # none has ended since the last start
        last = raw["ended"]
        if last is None:
            return None, None
        return (last["status"], None) if last["how"] == "exited" else (None, last["status"])
    status = int(show["ExecMainStatus"])
    return (None, status) if show["ExecMainCode"] in _KILLED else (status, None)


def _reason(
    state: str, show: dict[str, str], raw: dict[str, Any], code: int | None, number: int | None
) -> str:
    if state == "inactive":
        return _stopped(raw)
    if state not in ("failed", "restarting"):
        return ""
    why = _RESULTS.get(show["Result"]) or _end(code, number) or show["Result"]
    if state == "failed" and code is not None and str(code) in show["RestartPreventExitStatus"].split():
        return f"{why}, which a restart cannot cure"
    starts, limit = int(show["NRestarts"] or 0), int(show["StartLimitBurst"] or 0)
    if state == "failed" and show["Restart"] != "no" and 0 < limit <= starts:
        # systemd keeps the last failure as the result, and not the limit that ended the restarts.
        return f"start-limit: {starts} failures in a row, the last one: {why}"
    return why


def _stopped(raw: dict[str, Any]) -> str:
    if raw.get("stopped"):
        return f"stopped; {_RESULTS.get(raw['stopped'], raw['stopped'])}"
    if raw["enabled"]:
        return "stopped or ended, and not by pdctl"
    return "stopped" if raw["asked"] else NEVER_STARTED


def _end(code: int | None, number: int | None) -> str:
    if number is not None:
        return f"ended by signal {number} ({_signal(number)})"
    if code is None:
        return ""
    return f"exit code {code}" + (f": {_SETUP[code]}" if code in _SETUP else "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _by(show: dict[str, str], raw: dict[str, Any], clock: dict[str, Any]) -> str:
    """Who began this life. A start by hand resets systemd's own counter of restarts."""
    if int(show["NRestarts"] or 0):
        return "supervisor"
    if not raw["asked"]:
        return ""
    if raw["asked"] == show["InvocationID"]:
        return "pdctl"
    # 0 while the host is still coming up.
    booting = clock["booted"] == 0 or int(show["ExecMainStartTimestampMonotonic"]) <= clock["booted"]
    return "boot" if booting else "hand"


def _unix(stamp: str, clock: dict[str, Any]) -> float | None:
    """Unix seconds of a time of systemd's clock; None for one that never was."""
    if stamp in ("", "0"):
        return None
    return float(clock["now"] - (clock["mono"] - int(stamp)) / 1e6)
