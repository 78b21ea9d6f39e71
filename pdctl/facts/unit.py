"""What the unit backend knows of one unit, whichever backend it is."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

PORT_TAKEN = 73
# Exit codes that the bundled engine promises (its half of the contract).
ENGINE_EXITS = {
    0: "a clean stop",
    2: "a wrong flag, variable or file",
    70: "the engine's own fault",
    71: "a rank process died",
    72: "one of its processes froze",
    PORT_TAKEN: "a port was in use",
    74: "the model is missing or damaged, or cannot be served as asked",
    75: "the path between two hosts does not carry KV",
    76: "its scheduler made no progress",
}


@dataclass(frozen=True)
class Unit:
    """`state`: running, starting, stopping, backoff, failed, stopped, orphaned or absent.

    `wanted` is what the operator asked for.

    `exit` is the last exit code, negative for a signal, None when it never ended. `restarts` counts the
    starts that nobody asked for; `since` is when the state began (Unix seconds). `started_by` says who began
    the present life: pdctl, supervisor (after an end), hand, boot; "" when that is not known. `ended_by` is
    why the supervisor killed the life before, "" when it ended otherwise. `keeper` is the pid of the process
    that supervises this unit alone, and begins its lives; None under systemd.
    """

    name: str
    state: str
    wanted: bool
    pid: int | None
    exit: int | None
    restarts: int
    since: float | None
    started_at: float | None = None
    reason: str = ""
    started_by: str = ""
    ended_by: str = ""
    keeper: int | None = None

    def last_end(self) -> str:
        """How the life before this one ended, as words."""
        return f"killed by its supervisor ({self.ended_by})" if self.ended_by else meaning(self.exit)

    def born(self, at: float) -> Unit:
        """The same with the process's own start time (Unix seconds)."""
        return replace(self, started_at=at)


def meaning(code: int | None) -> str:
    """An exit code as words; 137 and the like are read as signals, as shells write them."""
    if code is None:
        return "no exit code was kept"
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        try:
            name = signal.Signals(number).name
        except ValueError:
            return f"exit code {code}"
        hint = " (out of memory, or a person)" if number == 9 else ""
        return f"ended by {name}{hint}"
    return f"exit code {code}: {ENGINE_EXITS.get(code, 'not one of the engine’s own codes')}"
