"""What pdctl did: every run with its steps and the commands it executed, however the run ended."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from pdctl.errors import PdctlError, UnreachableError
from pdctl.exits import Exit
from pdctl.remote.audit import Audit
from pdctl.remote.journal_retention import retain
from pdctl.remote.journal_store import Store
from pdctl.remote.operator import me
from pdctl.remote.recording import Executed


@dataclass(frozen=True)
class Call:
    """What an operator asked for. `again` are the words that ask for it once more; none when that would
    not finish the same work. Neither holds a secret."""

    command: str
    again: tuple[str, ...] = ()


@dataclass
class Doing:
    """A step under way on `hosts`; `failed` records it as failed though nothing is raised."""

    seq: int
    hosts: tuple[str, ...]
    changes: bool
    thread: int
    error: str = ""

    def failed(self, why: str) -> None:
        self.error = why


def new_run() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def quiet(text: str) -> None:
    """For callers that show nothing."""


@dataclass(frozen=True)
class Links:
    """What else a run is tied to. `inputs` are digests of the files it was made from, `resumes` the run it
    goes on with; `guard` raises when the run must not begin another step."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    resumes: str = ""
    guard: Callable[[], None] = lambda: None
    audit: Audit | None = None
    say: Callable[[str], None] = quiet


class Journal:
    """One run being written; used as a context manager, it notes how the run ended.

    A step's host is one host's name, several with commas between, or `fleet`. When the journal cannot be
    opened nothing has been changed yet and ConfigError says so; later trouble with it is said once, because
    it must not end a run half way.
    """

    def __init__(self, path: Path, call: Call | str, run: str = "", links: Links | None = None) -> None:
        asked = call if isinstance(call, Call) else Call(call)
        self.id = run or new_run()
        self._links = links or Links()
        self._store = Store(path)
        self._begin = time.monotonic()
        self._end = ("done", "")
        self._open: list[Doing] = []
        self._last: dict[str, tuple[int, int | None, str, int | None]] = {}
        self._seqs = 0
        self._lock = threading.Lock()
        self._silent = False
        self.begun = False  # a step that changes something
        who = me()
        row = (self.id, asked.command, json.dumps(asked.again), json.dumps(dict(self._links.inputs)))
        where = (self._links.resumes, who.owner, who.host, who.machine, who.pid, who.start, time.time())
        columns = "id, command, again, inputs, resumes, owner, host, machine, pid, start, started"
        self._store.write(
            f"INSERT INTO runs ({columns}, state, error) VALUES ({'?, ' * 11} 'running', '')", (*row, *where)
        )

    def resumable(self, *again: str) -> None:
        """Set the words that run this again, once they are known exactly, such as a chosen release."""
        self._write("UPDATE runs SET again = ? WHERE id = ?", (json.dumps(again), self.id))

    @contextmanager
    def doing(self, id: str, host: str, what: str, changes: bool = True) -> Iterator[Doing]:
        """A step from its begin to its end, so that a killed run shows where it was.

        `changes`: it goes to the audit record of its hosts, unless it is part of a step that does.
        """
        self._links.guard()
        step = Doing(self._next(), tuple(host.split(",")), changes, threading.get_ident())
        with self._lock:
            outer = [s for s in self._open if s.thread == step.thread and s.changes]
            alone = tuple(h for h in step.hosts if not any(h in s.hosts for s in outer))
            self._open.append(step)
        self.begun = self.begun or changes
        begin, state = time.monotonic(), "done"
        self._add_step(step.seq, id, host, what, "running", None, "")
        reached = True
        try:
            yield step
            state = "failed" if step.error else "done"
        except BaseException as error:
            state, step.error = _ended(error)
            reached = not isinstance(error, UnreachableError)
            raise
        finally:
            with self._lock:
                self._open.remove(step)
            took = time.monotonic() - begin
            self._write(
                "UPDATE steps SET state = ?, seconds = ?, detail = ? WHERE run = ? AND seq = ?",
                (state, took, step.error, self.id, step.seq),
            )
            if changes and reached:
                self._audit(alone, id, what, state, step.error)

    def step(self, id: str, host: str, what: str, state: str, seconds: float, detail: str = "") -> None:
        """A step that has ended: `state` is done, failed or interrupted. `detail` holds no secrets."""
        self.begun = self.begun or id != "lock"
        seq = self._next()
        self._add_step(seq, id, host, what, state, seconds, detail)
        self._write(
            "UPDATE commands SET step = ?"
            " WHERE run = ? AND step IS NULL AND at >= ? AND ? IN (host, 'fleet')",
            (seq, self.id, time.time() - seconds, host),
        )
        self._audit(tuple(host.split(",")), id, what, state, detail)

    def note(self, what: str, **more: Any) -> None:
        """A fact worth keeping, such as a measured time out of service."""
        data = json.dumps(more, default=str)
        row = (self.id, self._next(), time.time(), what, data)
        self._write("INSERT INTO notes VALUES (?, ?, ?, ?, ?)", row)

    def command(self, done: Executed) -> None:
        """One that a transport executed; it belongs to the step under way. Polling counts up."""
        with self._lock:
            step = self._step_of(done.host)
            self._seqs += 1
            seq, row = self._seqs, (step, done.command, done.rc)
            last = self._last.get(done.host)
            again = last is not None and last[1:] == row
            if not again:
                self._last[done.host] = (seq, *row)
        if again and last is not None:
            self._write(
                "UPDATE commands SET times = times + 1, seconds = seconds + ?, bytes = bytes + ?"
                " WHERE run = ? AND seq = ?",
                (done.seconds, done.bytes, self.id, last[0]),
            )
            return
        values = (done.host, done.command, done.rc, done.at, done.seconds, done.bytes)
        self._write(
            "INSERT INTO commands VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)", (self.id, seq, step, *values)
        )

    def ends(self, state: str, error: str) -> None:
        """How the run ended although nothing is raised: `state` is failed or interrupted."""
        self._end = (state, error)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, message = self._end if error is None else _ended(error)
        self._write(
            "UPDATE runs SET state = ?, seconds = ?, error = ? WHERE id = ?",
            (state, time.monotonic() - self._begin, message, self.id),
        )
        with suppress(PdctlError):  # it was said above, and the next run does it
            retain(self._store)
        self._store.close()

    def _step_of(self, host: str) -> int | None:
        """The innermost step of this thread, else of that host, else of the whole fleet."""
        mine = threading.get_ident()
        for is_it in (
            lambda s: s.thread == mine and (host in s.hosts or s.hosts == ("fleet",)),
            lambda s: host in s.hosts,
            lambda s: s.hosts == ("fleet",),
        ):
            found = [s.seq for s in self._open if is_it(s)]
            if found:
                return found[-1]
        return None

    def _next(self) -> int:
        with self._lock:
            self._seqs += 1
            return self._seqs

    def _add_step(
        self, seq: int, id: str, host: str, what: str, state: str, seconds: float | None, detail: str
    ) -> None:
        at = time.time() - (seconds or 0.0)
        self._write(
            "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (self.id, seq, id, host, what, state, at, seconds, detail),
        )

    def _audit(self, hosts: tuple[str, ...], id: str, what: str, state: str, detail: str) -> None:
        if self._links.audit is not None:
            for host in hosts:
                self._links.audit.write(host, id, what, f"{state}: {detail}" if detail else state)

    def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        try:
            self._store.write(sql, values)
        except PdctlError as error:
            if not self._silent:
                self._silent = True
                self._links.say(f"this run is not recorded any more: {error.message}")


def _ended(error: BaseException) -> tuple[str, str]:
    """State and sentence of a run or step that raised."""
    stopped = isinstance(error, KeyboardInterrupt)
    if isinstance(error, PdctlError):
        return ("interrupted" if error.exit is Exit.INTERRUPTED else "failed"), error.message
    return ("interrupted", "") if stopped else ("failed", f"{type(error).__name__}: {error}")
