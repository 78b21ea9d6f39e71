"""run, put and get through the far program, with the errors that every transport gives."""

from __future__ import annotations

import time

from pdctl.errors import ConfigError, DeadlineError, PdctlError
from pdctl.transport.command import Command, Result
from pdctl.transport.far.calls import Calls


def run(calls: Calls, command: Command, deadline: float) -> Result:
    started = time.monotonic()
    spec = {"op": "run", "argv": command.raw(), "env": command.raw_env(), "cwd": command.cwd}
    answer = calls.call(spec, command.stdin, deadline)
    seconds = time.monotonic() - started
    if error := answer.end.get("error"):
        return Result(127, b"", error.encode(), seconds)
    rc, timed_out = answer.end["rc"], answer.end["timed_out"]
    return Result(rc, b"".join(answer.out), b"".join(answer.err), seconds, timed_out)


def put(calls: Calls, host: str, data: bytes, path: str, mode: int, deadline: float) -> None:
    end = calls.call({"op": "put", "path": path, "mode": mode}, data, deadline).end
    if end.get("timed_out"):
        raise _late(f"Writing {path}", host, deadline)
    if error := end.get("error"):
        raise ConfigError("cannot_write", f"{path} cannot be written on {host}: {error}.")


def get(calls: Calls, host: str, path: str, limit: int, deadline: float) -> bytes:
    answer = calls.call({"op": "get", "path": path, "limit": limit}, b"", deadline)
    if answer.end.get("kind") == "FileNotFoundError":
        raise PdctlError("no_file", f"There is no {path} on {host}.")
    if answer.end.get("timed_out"):
        raise _late(f"Reading {path}", host, deadline)
    if error := answer.end.get("error"):
        raise ConfigError("cannot_read", f"{path} cannot be read on {host}: {error}.")
    return b"".join(answer.out)


def refusal(calls: Calls, address: str, port: int, deadline: float) -> OSError | None:
    """What a connect from there says, as the exception that a connect from here would raise."""
    spec = {"op": "connect", "address": address, "port": port}
    end = calls.call(spec, b"", deadline).end
    if "error" not in end:
        return None
    kind = {"ConnectionRefusedError": ConnectionRefusedError, "TimeoutError": TimeoutError}.get(end["kind"])
    return (kind or OSError)(end["errno"], end["error"])


def _late(what: str, host: str, deadline: float) -> DeadlineError:
    return DeadlineError("command_timeout", f"{what} on {host} did not end in {deadline:g} s.")
