"""PD214: an exception ended a server, and no other rule knows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.advice import advice
from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import (
    before,
    died,
    echoes,
    fatal,
    gravity,
    past,
    place,
    raised,
    runs,
    said_in,
    signal_of,
    told,
)
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.rules.process.pd226_error_lines import skew
from pdctl.diagnose.words import span


def _says(what: str) -> list[Hypothesis]:
    if not what:
        return []
    return [Hypothesis("a setting is not as it has to be, and it says how", what)]


def _said_before(above: Sequence[Event]) -> list[Hypothesis]:
    if not above:
        return []
    return [
        Hypothesis(
            f"what is said first: “{said_in(above[0])}”; the exception is its echo",
            "search for that line with the version; read what stands around it",
        )
    ]


def _room(event: Event, frames: Sequence[Event]) -> list[Hypothesis]:
    """A connector that does not find a room that it had: rooms are used once."""
    here = any(e.values.get("file", "").endswith("conn.py") for e in frames)
    number = event.values.get("message", "").strip()
    if not (here and number.isdigit() and event.values.get("type") == "KeyError"):
        return []
    return [
        Hypothesis(
            f"two requests had the room {number} at once, or it was ended on another path",
            "who picks bootstrap_room: a router of your own, or a client? grep the room in all logs",
        )
    ]


def _live(party: Party, event: Event, where: str, frames: Sequence[Event]) -> list[Hypothesis]:
    version = f" {party.traces.version}" if party.traces.version else ""
    kind = party.traces.kind or "the engine"
    return [
        *skew([event]),
        *_room(event, frames),
        Hypothesis(
            f"{kind}{version} fails on a setting or a request that the message names"
            + (f", or {where} is wrong in this build" if where else ""),
            ("search for that function with the version; " if where else "")
            + "send the request from just before it to a fresh engine alone; compare its settings",
        ),
        Hypothesis(
            "another rank, peer or host failed first and this is its echo",
            "read the logs of all ranks and peers of the minute before",
        ),
    ]


def _ended(party: Party, event: Event) -> bool:
    """An exception of a life that still runs ended nothing, unless a line says that a process died of it."""
    if past(party, event) or not runs(party):
        return True
    signs = ("process.fatal", "process.signal", "process.unit_ended")
    return any(not past(party, e) for e in party.traces.of(*signs))


def _survived(party: Party, event: Event) -> bool:
    """It worked on after it, called nothing fatal, and was killed: that was something else."""
    traces = party.traces
    worked = any(e.order > event.order for e in traces.of("net.ready"))
    fatally = any(e.order >= event.order for e in traces.of("process.fatal"))
    return worked and not fatally and signal_of(traces) is not None


def _note(rule: Rule, facts: Facts, party: Party, event: Event) -> Finding:
    """An end that is over: neither a cause nor an effect of what fails now."""
    when = f", {span(facts.at - event.at)} ago" if event.at is not None else ""
    return rule.finding(
        party.name,
        f"An earlier life of {party.name} ended with {told(event).rstrip('.')}{when}.",
        quoted([event]),
        f"pdctl logs {party.name}",
        since=event.at,
        severity=Severity.INFO,
    )


@rule(
    "PD214",
    "ended by an exception",
    Severity.ERROR,
    ["logs"],
    echo_of=["PD680", "PD685", "PD616", "PD617", "PD216", "PD217", "PD218"],
    fallback=True,
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server ended, and the oldest exception of its last life that is no echo is what its log shows.

    What it looks like: a traceback, then other processes of the engine that end because of it:
    "EngineDeadError", "Received sigquit from a child process", "worker died unexpectedly" are echoes.

    What else it could be: an exception that is logged and survived ended nothing. The first one counts, and
    an older one on another rank or host counts more.

    What to do: read the lines above the traceback; the class and the message are what to search for,
    together with the version.
    """
    for party in facts.parties:
        event = fatal(party.traces) if died(party) else None
        if event is None or not _ended(party, event) or _survived(party, event):
            continue
        if past(party, event):
            yield _note(rule, facts, party, event)
            continue
        others = [e for e in raised(party.traces) if e is not event and not past(party, e)]
        # It only says that another process ended: whatever ended one may be that.
        echo = echoes(event)
        if echo and any(party.traces.of("watchdog.fired", "collective.timeout")):
            continue  # PD446
        gone = [p.name for p in facts.parties if echo and p is not party and died(p)]
        above = before(party, event)
        where, frames = place(party.traces, event)
        says = advice(event.values.get("message", ""), party.traces)
        says = says and f"{says} on {party.name} and its peers, then: pdctl deploy"
        asserted = next((e.values["what"] for e in frames if "what" in e.values), "")
        yield rule.finding(
            party.name,
            f"{party.name} ended with {told(event).rstrip('.')}"
            + (f": {asserted}" if asserted else "")
            + (f", in {where}" if where else "")
            + (f"; before that: {said_in(above[0])}." if above else "."),
            [*quoted(above), *quoted([event, *others]), *quoted(frames)],
            says or f"pdctl logs {party.name}",
            touches=[party.name, *gone],
            since=event.at,
            severity=gravity(party),
            hypotheses=[*_says(says), *_said_before(above), *_live(party, event, where, frames)][:3],
        )
