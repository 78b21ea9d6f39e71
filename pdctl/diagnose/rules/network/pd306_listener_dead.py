"""PD306: a listener thread died in a process that lives."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.endpoints import endpoint
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_NEAR = 60  # lines of a traceback between a thread's end and its reason


@rule("PD306", "a thread died in a living process", Severity.ERROR, ["logs"], echo_of=["PD110", "PD111"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A thread that takes in peers (handshake listener, bootstrap, side channel) ended with an exception.

    What it looks like: the process runs and may be healthy, or waits for ever for a message that this thread
    would have caused; peers get no answer. Where the thread could not bind, its port belongs to somebody
    else.

    What else it could be: an exception that ended the whole process is that exception's own finding. An
    exception in a thread that serves one request only harms nothing.

    What to do: remove the thread's reason (usually one port base for two servers) and restart that server:
    the thread does not come back by itself.
    """
    for party in facts.parties:
        threads = list(party.traces.of("net.thread_died"))
        if not threads or died(party):
            continue
        first = threads[0]
        reasons = [
            e
            for e in party.traces.of("net.in_use", "net.not_assignable", "process.raised", "pair.page_size")
            if 0 <= e.order - first.order <= _NEAR
        ]
        waits = list(party.traces.of("net.waits_ready"))
        in_use = [e for e in reasons if e.sign == "net.in_use"]
        refused = [e for e in party.traces.of("net.refused") if 0 <= e.order - first.order <= _NEAR]
        called = (endpoint(refused[-1].line) or "what it calls") if refused else None
        name = first.values.get("target") or first.values.get("thread", "a thread")
        yield rule.finding(
            party.name,
            f"the thread {name} of {party.name} died and the process lives on"
            + (": its port was in use." if in_use else f": {called} refused it." if called else "."),
            quoted([first, *(in_use or refused[-1:] or reasons[-1:]), *waits]),
            (
                "give each server a port base of its own, then: "
                if in_use
                else f"start the server at {called}, then: "
                if called
                else "remove its reason, then: "
            )
            + f"pdctl restart {party.name}",
            since=since(threads),
        )
