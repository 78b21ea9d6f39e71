"""Errors that cross a boundary, each with a code, one sentence and what to do next.

EngineError
├── ConfigError      wrong flag, variable or file; the process exits 2
├── RankLost         a rank's dealings with another rank of its engine broke; the cause may be the other
└── RequestError     one request cannot be served; becomes an OpenAI error body
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `python -m engine …`; part of the contract with pdctl."""

    OK = 0
    CONFIG = 2
    INTERNAL = 70
    RANK_DIED = 71
    RANK_FROZEN = 72
    PORT_IN_USE = 73
    MODEL = 74
    PATH = 75
    NO_PROGRESS = 76


class EngineError(Exception):
    """A failure with a stable code. `hint` says what to do next, may be empty; `status` is for HTTP."""

    exit: Exit = Exit.INTERNAL
    status: int = 500

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.code = code
        self.message = message
        self.hint = hint


class ConfigError(EngineError):
    exit = Exit.CONFIG
    status = 400


class ModelError(EngineError):
    exit = Exit.MODEL


class RankLost(EngineError):
    """An effect: the parent looks which rank died or froze; when none did, this rank itself is at fault."""

    def __init__(self, what: str) -> None:
        super().__init__("engine_failed", f"{what} failed.")


class RequestError(EngineError):
    """`status` is the HTTP status a client sees."""

    def __init__(self, code: str, message: str, status: int = 400, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.status = status


# Failure codes of a request and their HTTP status. 503 means "not now", 504 a deadline, 4xx the client.
FAILURE_STATUS: dict[str, int] = {
    "kv_transfer_timeout": 504,
    "kv_transfer_failed": 502,
    "kv_corrupt": 502,
    "prealloc_timeout": 503,
    "queue_timeout": 503,
    "peer_lost": 502,
    "peer_incompatible": 502,
    "link_failed": 502,
    "pages_refused": 503,
    "draining": 503,
    "aborted": 499,
    "engine_failed": 500,
    "context_length_exceeded": 400,
    "invalid_request": 400,
}


def status_of(code: str) -> int:
    """HTTP status for a failure code; an unknown code is the engine's own fault."""
    return FAILURE_STATUS.get(code, 500)
