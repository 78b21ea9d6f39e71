"""What a unit is, as data. Imported on hosts by the keeper, so standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

# Exit codes of the engine that a restart cannot cure: wrong configuration, missing or damaged model.
NO_RESTART = (2, 74)
# The reason of a unit that is installed and has had no life yet.
NEVER_STARTED = "never started"


@dataclass(frozen=True)
class UnitSpec:
    """One supervised process. Times are seconds, sizes bytes.

    `inputs` is a digest of everything that needs a restart to take effect; the keeper hands it back with
    the state of the process that it started, so that a deploy can tell whether that process is current.
    `role`, `fleet` and `cell` say what it is; `user` runs it where units are the machine's (empty: the one
    who installs it); `numa` binds its CPUs and memory to that node.
    `burst` failures inside `burst_window` end in the state failed (start-limit). `watchdog` 0 is off.
    """

    name: str
    argv: tuple[str, ...]
    env_file: str
    cwd: str
    log: str
    run: str
    inputs: str = ""
    notify: bool = True
    start_timeout: float = 300.0
    stop_timeout: float = 45.0
    watchdog: float = 0.0
    restart: bool = True
    restart_delay: float = 1.0
    burst: int = 5
    burst_window: float = 300.0
    no_restart: tuple[int, ...] = NO_RESTART
    log_limit: int = 32 << 20
    log_keep: int = 3
    role: str = ""
    fleet: str = ""
    cell: str = ""
    user: str = ""
    numa: int | None = None
    env: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps({"schema": 1, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> UnitSpec:
        """ValueError when `text` is not a unit."""
        data: dict[str, Any] = json.loads(text)
        if data.pop("schema", None) != 1:
            raise ValueError("not a unit of schema 1")
        for key in ("argv", "no_restart"):
            data[key] = tuple(data[key])
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class UnitStatus:
    """What is true of a unit now.

    `state`: missing (no unit file), inactive, activating, active, deactivating, restarting, failed, orphaned
    (its process runs and nobody supervises it). `reason` says why, `status` is the process's own words.
    `exit_code` and `exit_signal` are of the last process that ended; `ended_by` is why its supervisor killed
    it, empty when it ended otherwise. Times are Unix seconds; `since` is
    when the state began, `started_at` when the process did. `started_by` says who started that process:
    pdctl, supervisor (unasked, after a failure), boot, or hand (somebody else's systemctl); empty when
    none runs or it is not known. `wanted`: pdctl has started it and not stopped it since.
    """

    name: str
    state: str
    reason: str = ""
    status: str = ""
    pid: int | None = None
    keeper_pid: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    exit_signal: int | None = None
    ended_by: str = ""
    since: float | None = None
    started_at: float | None = None
    started_by: str = ""
    wanted: bool = False
    inputs: str = ""

    @property
    def running(self) -> bool:
        return self.pid is not None

    def ended(self) -> str:
        """How the last process ended, as words; empty when none has."""
        if self.exit_signal is not None:
            return f"signal {self.exit_signal}"
        return "" if self.exit_code is None else f"exit code {self.exit_code}"
