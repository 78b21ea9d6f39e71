"""One round trip to a host's facts: the host tool with everything that is asked, and its answers.

The tool's parts (facts/probes) are joined into one script that any Python 3.9 runs from stdin.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pdctl.errors import DeadlineError, PdctlError
from pdctl.exits import Exit
from pdctl.facts.missing import Missing
from pdctl.transport.base import Transport
from pdctl.transport.command import Command
from pdctl.transport.joined import joined

# Names of facts/probes, in an order in which module-level names are there when they are used.
PARTS = (
    *("proc", "process", "ports", "gpu", "leftovers", "machine", "topology", "reach", "logs", "tools"),
    *("stacks", "model"),
    "main",
)
PLAIN = "python3"
NOT_FOUND = 127
DEADLINE = 30.0
Request = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Answers:
    """`sent` is Unix seconds on this machine when the question left, `seconds` what the round trip took."""

    facts: Mapping[str, Any]
    missing: Mapping[str, str]
    sent: float
    seconds: float

    def of(self, subject: str) -> Any:
        """What the tool said of `subject`, or Missing."""
        if subject in self.facts:
            return self.facts[subject]
        return Missing(self.missing.get(subject, "it was not asked"))


@cache
def source() -> bytes:
    """The tool as one script: the parts without their imports of one another."""
    folder = resources.files("pdctl.facts.probes")
    return joined(folder.joinpath(f"{part}.py").read_text("utf-8") for part in PARTS)


def ask(transport: Transport, python: str, request: Request, deadline: float = DEADLINE) -> Answers:
    """Asked again as root when that would tell more and root can be had. PdctlError when it cannot be asked.

    A `python` that is not there is no reason to know nothing: any other will do.
    """
    argv = ("ask", json.dumps(request))
    document, sent, seconds = _run(transport, python, argv, deadline, root=False)
    if document["denied"]:
        try:
            document, sent, seconds = _run(transport, python, argv, deadline, root=True)
        except PdctlError:
            pass  # without root what is known stands, and says what could not be seen
    return Answers(document["facts"], document["missing"], sent, seconds)


def listen(transport: Transport, python: str, ear: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Serve as an ear on that host (probes.reach.listen); blocks until it has been visited or time is up."""
    return _run(transport, python, ("listen", json.dumps(ear)), deadline, root=False)[0]


def _run(
    transport: Transport, python: str, argv: tuple[str, ...], deadline: float, root: bool
) -> tuple[dict[str, Any], float, float]:
    """What the tool printed, when the question left (Unix seconds) and how long it took."""
    sent = time.time()
    result = transport.run(Command((python, "-", *argv), stdin=source(), root=root), deadline)
    if result.rc == NOT_FOUND and python != PLAIN:
        return _run(transport, PLAIN, argv, deadline, root)
    if result.timed_out:
        raise DeadlineError("facts_timeout", f"{transport.host} gave no facts in {deadline:g} s.")
    try:
        document: dict[str, Any] = json.loads(result.text)
    except ValueError:
        message = f"{python} on {transport.host} gave no facts (exit code {result.rc})."
        hint = "pdctl needs a Python 3.9 or newer there; hosts.NAME.python names one."
        raise PdctlError("no_facts", message, hint, exit=Exit.PARTIAL, details=result.tail()) from None
    return document, sent, result.seconds
