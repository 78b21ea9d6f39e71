"""The fleet's lock, held on the fleet's control host: who holds it, take it, release it.

The host tool (lock_tool.py) makes every verb one act and counts time by that host's clock. What only this
machine can know, whether a process here still lives, is judged here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from pdctl.errors import ConfigError, DeadlineError, LockedError, PdctlError, UnreachableError
from pdctl.fleet.model import Host
from pdctl.remote import lock_tool
from pdctl.remote.operator import Operator, gone
from pdctl.remote.tool import call_tool
from pdctl.transport.base import Transport

# A holder on another machine is dead when its heartbeat is older than this, seconds.
STALE = 60.0
# (verb, question) -> answer, as lock_tool.py describes them
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


_DOING = {
    "look": "looking at the lock",
    "take": "taking the lock",
    "beat": "the lock's heartbeat",
    "release": "releasing the lock",
}


@dataclass(frozen=True)
class Holder:
    """`kind` is auto for a run of pdctl, manual for a person; `run` is the run's id in its journal.

    `since` and `heartbeat` are times by the control host's clock; `age` of the heartbeat and `held` are
    seconds, as it counted them when asked.
    """

    id: str
    owner: str
    host: str
    machine: str
    pid: int
    start: int | None
    command: str
    run: str
    kind: str
    reason: str
    since: float = 0.0
    heartbeat: float = 0.0
    age: float = 0.0
    held: float = 0.0

    @property
    def manual(self) -> bool:
        return self.kind == "manual"

    @property
    def stale(self) -> bool:
        """Whether the holder is known to be dead. A manual lock never is."""
        if self.manual:
            return False
        seen = gone(self.machine, self.pid, self.start)
        return seen if seen is not None else self.age > STALE

    def words(self) -> str:
        who = f"{self.owner}@{self.host}"
        if self.manual:
            return f"{who} by hand for {span(self.held)}: {self.reason}"
        return f"{who} (pid {self.pid}) for {span(self.held)}: {self.command}"


class HeldError(LockedError):
    """Somebody else has the lock."""

    def __init__(self, holder: Holder) -> None:
        super().__init__("locked", f"The fleet is held by {holder.words()}.", _hint(holder))
        self.holder = holder


def span(seconds: float) -> str:
    """Seconds as a person says them."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def holder_for(operator: Operator, id: str, command: str, run: str = "", reason: str = "") -> Holder:
    """A holder to be; with a reason, one by hand."""
    kind = "manual" if reason else "auto"
    return Holder(id=id, command=command, run=run, kind=kind, reason=reason, **asdict(operator))


@dataclass(frozen=True)
class FleetLock:
    """The lock of one fleet. `host` is the control host's name; `ask` reaches its lock tool.

    `expires`: a holder without a heartbeat is dead although its process lives, as one that is frozen.
    """

    host: str
    ask: Ask
    expires: bool = False

    def look(self) -> Holder | None:
        return _holder(self._safely("look", {}))

    def take(self, wanted: Holder) -> Holder | None:
        """Take it, or HeldError. Returns the dead holder it was taken from, if any."""
        entry = {k: v for k, v in asdict(wanted).items() if k not in ("since", "heartbeat", "age", "held")}
        answer = self._safely("take", {"holder": entry})
        holder = _holder(answer)
        if not answer["taken"] and holder is not None and self._dead(holder):
            # Only from exactly what was judged: somebody may have been faster, or the holder came back.
            judged = [holder.id, holder.heartbeat]
            answer = self._safely("take", {"holder": entry, "dead": judged})
            holder = _holder(answer)
        if not answer["taken"] and holder is not None:
            raise HeldError(holder)
        return None if answer["over"] is None else _parse(answer["over"])

    def _dead(self, holder: Holder) -> bool:
        return holder.stale or (self.expires and not holder.manual and holder.age > STALE)

    def beat(self, id: str) -> tuple[bool, Holder | None, str]:
        """Whether the lock is still `id`'s, who else's it is, and why the heartbeat was not written."""
        answer = self.ask("beat", {"id": id})
        return bool(answer["mine"]), _holder(answer), str(answer.get("problem", ""))

    def release(self, id: str) -> bool:
        """Whether it was `id`'s until now."""
        return bool(self.ask("release", {"id": id})["released"])

    def _safely(self, verb: str, question: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.ask(verb, question)
        except (UnreachableError, DeadlineError) as error:
            raise UnreachableError(
                "lock_unreachable",
                f"The fleet's lock is on {self.host}, which cannot be reached, so nothing was changed.",
                "When that host is gone for good, name another one as `control` under [fleet].",
                details=[error.message, *error.details],
            ) from None
        except PdctlError as error:
            raise ConfigError(
                "lock_unusable",
                f"The fleet's lock on {self.host} cannot be used, so nothing was changed: {error.message}",
                error.hint,
                details=error.details,
            ) from None


def _holder(answer: dict[str, Any]) -> Holder | None:
    return None if answer["holder"] is None else _parse(answer["holder"])


def _parse(found: dict[str, Any]) -> Holder:
    """A holder that another version of pdctl wrote may have more keys, or fewer."""
    given = {f.name: found[f.name] for f in fields(Holder) if f.name in found}
    missing = {"machine": "", "pid": 0, "start": None, "command": "?", "run": "", "reason": ""}
    return Holder(**{**missing, **given})


def _hint(holder: Holder) -> str:
    if holder.manual:
        return "`pdctl lock release` ends it, for whoever took it; nobody else waits for it."
    return "Wait until that run has ended, `--lock-wait SECONDS` does; `pdctl lock status` shows it."


def lock_on(host: Host, way: Callable[[], Transport], file: str = "lock", expires: bool = False) -> FleetLock:
    """The lock below `host`'s root; `way` gives the transport there when it is first needed."""

    def ask(verb: str, question: dict[str, Any]) -> dict[str, Any]:
        full = {"root": host.root, "file": file, **question}
        return call_tool(way(), host.tool_python, lock_tool, verb, full, _DOING[verb])

    return FleetLock(host.name, ask, expires)
