"""Exit codes of every `pdctl` verb: the same in text and with --json."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    INTERNAL = 1
    USAGE = 2
    FINDINGS = 3
    PARTIAL = 4
    UNREACHABLE = 5
    LOCKED = 6
    TIMEOUT = 7
    CHANGES = 8
    INTERRUPTED = 130


MEANING: dict[Exit, str] = {
    Exit.OK: "done; nothing wrong",
    Exit.INTERNAL: "pdctl failed by its own fault",
    Exit.USAGE: "a flag, a file or a value is wrong",
    Exit.FINDINGS: "unhealthy, or findings",
    Exit.PARTIAL: "some hosts or cells succeeded, others did not",
    Exit.UNREACHABLE: "a host or an engine could not be asked",
    Exit.LOCKED: "another run holds the fleet's lock",
    Exit.TIMEOUT: "a deadline passed",
    Exit.CHANGES: "changes are pending (--detailed-exitcode)",
    Exit.INTERRUPTED: "interrupted",
}
