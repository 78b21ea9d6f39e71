"""What a deploy came to, cell by cell and host by host; and the error that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pdctl.errors import PdctlError
from pdctl.exits import Exit


class State(StrEnum):
    """Of a group. `stopped`: by its preflight, and it serves as before; `kept`: it serves, and was not given
    what another cell had just failed with. `not deployed`: a host of it, or the router's, takes no part."""

    SAME = "unchanged"
    DONE = "done"
    BACK = "put back"
    FAILED = "failed"
    BLOCKED = "not deployed"
    STOPPED = "stopped by preflight"
    KEPT = "left as it was"


@dataclass
class GroupResult:
    """`why` is empty when all is well; `serves` is the deployment that this group serves now, "" for none.

    `error` is what went wrong first. Where something was done after it, `now` says what has become of it, as
    sentences, and `next` what to do, because what `error` says of either is of the moment when it was raised.
    """

    group: str
    hosts: tuple[str, ...]
    state: State
    why: str = ""
    serves: str = ""
    error: PdctlError | None = None
    now: tuple[str, ...] | None = None
    next: str = ""

    def document(self) -> dict[str, Any]:
        about = {"group": self.group, "hosts": list(self.hosts), "state": str(self.state)}
        error = self.error.document() if self.error else None
        after = {} if self.now is None else {"now": list(self.now), "next": self.next}
        return {**about, "why": self.why, "serves": self.serves, "error": error, **after}


@dataclass
class HostResult:
    """`release` is the current one there, "" when it is not known."""

    host: str
    state: str
    release: str = ""
    why: str = ""


@dataclass
class Outcome:
    groups: list[GroupResult] = field(default_factory=list)
    hosts: list[HostResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[GroupResult]:
        return [g for g in self.groups if g.state in (State.BACK, State.FAILED)]

    @property
    def blocked(self) -> list[GroupResult]:
        return [g for g in self.groups if g.state is State.BLOCKED]

    @property
    def stopped(self) -> list[GroupResult]:
        return [g for g in self.groups if g.state is State.STOPPED]

    @property
    def exit(self) -> Exit:
        """FINDINGS when a gate failed and something was put back, the cause's own code when nothing could
        be, and when a preflight stopped a cell; PARTIAL when some hosts kept cells from being deployed to,
        their own code when they kept all."""
        if any(g.state is State.BACK for g in self.failed):
            return Exit.FINDINGS
        if bad := self.failed or self.stopped:
            return _exit(bad[0])
        if self.blocked:
            others = [g for g in self.groups if g.hosts and g.state is not State.BLOCKED]
            return Exit.PARTIAL if others else _exit(self.blocked[0])
        return Exit.OK

    def document(self) -> dict[str, Any]:
        return {
            "groups": [g.document() for g in self.groups],
            "hosts": [vars(h) for h in self.hosts],
            "notes": self.notes,
        }

    def check(self) -> None:
        """DeployFailed when not all of it was done."""
        if self.exit is not Exit.OK:
            raise DeployFailed(self)


def _exit(result: GroupResult) -> Exit:
    return result.error.exit if result.error else Exit.FINDINGS


class DeployFailed(PdctlError):
    """The cause's own code and sentence, what is true of every cell now, and what to do."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        bad = outcome.failed or outcome.stopped or outcome.blocked
        first = bad[0]
        cause = first.error or PdctlError("deploy_failed", first.why)
        message, hint, said = cause.message, cause.hint, cause.details
        if first.now is not None:
            hint, said = first.next, first.now
        if first.state is State.BACK:
            message = f"{cause.message} {_capital(first.group)} is back on deployment {first.serves}."
        elif first.state is State.BLOCKED:
            names = ", ".join(g.group for g in outcome.blocked if g.hosts)
            message = f"Not deployed to {names}: {cause.message}"
        details = [*said, *_truth(outcome.groups, first)]
        super().__init__(cause.code, message, hint, outcome.exit, details)


def _truth(groups: Sequence[GroupResult], first: GroupResult) -> list[str]:
    lines = []
    for g in groups:
        if g is first and g.state is State.FAILED:
            lines.append(f"{g.group}: {g.why}")
        elif g is not first and (g.hosts or g.state is not State.SAME):
            lines.append(f"{g.group}: {g.state}" + (f" ({g.why})" if g.why else ""))
    return lines


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
