"""What pdctl tells an operator when something is wrong.

PdctlError            code, one sentence, what to do next, exit code
├── ConfigError       a flag, a file or a value is wrong (exit 2)
├── UnreachableError  a host or an engine could not be asked (exit 5)
├── LockedError       another run holds the fleet (exit 6)
└── DeadlineError     a deadline passed (exit 7)
"""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.exits import Exit


class PdctlError(Exception):
    """`code` is stable and never reused; `details` are further lines (file:line errors, a log's tail)."""

    exit: Exit = Exit.INTERNAL

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        exit: Exit | None = None,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(f"{message} {hint}".strip())
        self.code = code
        self.message = message
        self.hint = hint
        self.details = tuple(details)
        if exit is not None:
            self.exit = exit

    def document(self) -> dict[str, object]:
        """The `error` object of --json."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "exit": int(self.exit),
            "details": list(self.details),
        }


class ConfigError(PdctlError):
    exit = Exit.USAGE


class UnreachableError(PdctlError):
    exit = Exit.UNREACHABLE


class LockedError(PdctlError):
    exit = Exit.LOCKED


class DeadlineError(PdctlError):
    exit = Exit.TIMEOUT
