"""PD226: the last that a server says are errors that no rule knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts, Party
from pdctl.diagnose.lives import died, fatal, past, said_in
from pdctl.diagnose.progress import moves
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count
from pdctl.facts.missing import known

_CAUSES = ("PD214", "PD212", "PD446", "PD524", "PD225", "PD443")
# Signs that say nothing of what a line is about.
_GENERAL = ("log.", "process.raised", "process.traceback", "vllm.key_error", "http.", "net.ready")
# A client that left or asked for what there is not, and a stop.
_CLIENT = re.compile(
    r"(?i)context cancell?ed|client disconnect|AbortReq|bad request|\b4\d\d\b|validation|template|broken pipe"
    r"|terminated|shutting down|shut down|cancelled"
)
_SPEAKS = re.compile(r"\w{3}\W+\w{3}")  # a frame's underline says nothing


def _unknown(party: Party) -> list[Event]:
    known = {e.where for e in party.traces.events if not e.sign.startswith(_GENERAL)}
    lines = [
        e
        for e in party.traces.of("log.error")
        if e.where not in known and not _CLIENT.search(e.line) and _SPEAKS.search(e.line)
    ]
    raised = [e for e in party.traces.of("process.raised") if e.where in {line.where for line in lines}]
    return raised or lines


def _idle(engine: EngineView) -> bool:
    """It shows its requests and has none, and says that it is ready for some."""
    state = engine.state
    return known(state) and state.ready and engine.shows_requests and not engine.legs


def _works(party: Party, after: Event, at: float) -> bool:
    """Something went well after the last of them, or there is nothing that it should work at."""
    if isinstance(party, EngineView) and (party.working or _idle(party)):
        return True
    later = any(e.order > after.order for e in party.traces.of("net.ready"))
    return later or (party.role != "router" and moves(party.traces, at=at))


def skew(lines: Sequence[Event]) -> list[Hypothesis]:
    """Where a message or a call does not have what its reader wants, two pieces are of two versions."""
    words = ("has no attribute", "unexpected keyword argument", "missing 1 required", "cannot import name")
    if not any(word in e.line for e in lines for word in words):
        return []
    return [
        Hypothesis(
            "two pieces that speak to each other are of different versions",
            "compare the versions of frontend, prefill, decode and their libraries (pip freeze on each)",
        )
    ]


@rule("PD226", "errors that no rule knows", Severity.ERROR, ["logs"], echo_of=_CAUSES, fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server ended, or did nothing well any more, after lines that it calls errors itself.

    What it looks like: ERROR lines that no other rule knows; then an end, or a log in which nothing works.

    What else it could be: an error that is logged and survived: later requests go well. What a client did
    wrong is no error of the server.

    What to do: search for the oldest line together with the version. It is the first error that counts.
    """
    for party in facts.parties:
        lines = [e for e in _unknown(party) if not past(party, e)]
        dead = died(party)
        if not lines or (dead and fatal(party.traces)) or party.traces.ended in (0, 143, -15):
            continue
        if not dead and _works(party, lines[-1], facts.at):
            continue
        said = said_in(lines[0])
        how = "ended" if dead else "shows no work"
        yield rule.finding(
            party.name,
            f"{party.name} {how} after {count(len(lines), 'error')} that no rule knows: {said}",
            quoted(lines),
            f"pdctl logs {party.name}",
            since=since(lines),
            severity=None if dead else Severity.WARNING,
            hypotheses=[
                *skew(lines),
                Hypothesis(
                    "what the first of them names",
                    "send one request with the log at debug; search for the line with the version",
                ),
                Hypothesis(
                    "a server that it calls failed first",
                    "read the logs of its peers, store and router of the minute before",
                ),
            ],
        )
