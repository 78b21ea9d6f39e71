"""PD304: refused, and nobody shows a listener there."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import (
    Endpoint,
    by_endpoint,
    endpoint,
    listeners,
    loopback,
    owner,
    ports,
    recovered,
)
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_FINE = 3  # refusals that a start in the wrong order explains


def _unnamed(rule: Rule, facts: Facts, events: list[Event]) -> Finding:
    """A transport that is refused and does not say where."""
    names = writers(events)
    touched = partners(facts, names)
    dead = [p.name for p in facts.parties if p.name in touched and died(p)]
    return rule.finding(
        listed(names),
        f"The transport of {listed(names)} is refused by its peer, {count_words(len(events))}; "
        + (f"the line names no address, and {listed(dead)} ended." if dead else "the line names no address."),
        quoted(events),
        "ss -ltnp on the peer's host: does the port that its log names still have a listener?",
        touches=touched,
        since=since(events),
        hypotheses=(
            Hypothesis(
                "the peer's process of that transport is gone or was restarted on another port",
                "compare the start of the peer with the first of these lines; restart both together",
            ),
            Hypothesis(
                "it announced an address where it does not listen (loopback, another interface)",
                "the address in the peer's log against ss -ltnp there",
            ),
        ),
    )


@rule(
    "PD304",
    "refused where a peer should listen",
    Severity.ERROR,
    ["logs"],
    echo_of=[
        "PD303",
        "PD305",
        "PD306",
        "PD308",
        "PD309",
        "PD330",
        "PD201",
        "PD203",
        "PD210",
        "PD211",
        "PD212",
        "PD213",
        "PD214",
        "PD510",
        "PD511",
        "PD513",
    ],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server is refused at the address it was given for its peer.

    What it looks like: "Connection refused" again and again at one address; the peer may be healthy and
    listen elsewhere. In prefill/decode serving the bootstrap server belongs to the prefill: whoever is sent
    to decode for it is refused for ever while both look ready.

    What else it could be: the peer is dead (its exit or its log says so), or bound to loopback (PD303). A few
    refusals while the peer starts are no fault. Timeouts are PD312.

    What to do: see with `ss -ltnp` on that host who owns the port, then point peers to the server that does.
    """
    nameless = [e for e in facts.events("net.refused") if endpoint(e.line) is None and "ransport" in e.line]
    if nameless and not recovered(facts, nameless):
        yield _unnamed(rule, facts, nameless)
    for at, events in by_endpoint(facts.events("net.refused")).items():
        host = owner(facts, at)
        bound = listeners(host, at.port) if host else []
        if any(not loopback(s.address) for s in bound) or (len(events) <= _FINE and recovered(facts, events)):
            continue
        if any(loopback(s.address) for s in bound) and not loopback(at.host):
            continue  # PD303
        there = [p.name for p in facts.parties if host is not None and p.member.host == host.name]
        dead = [p.name for p in facts.parties if died(p) and (p.name in there or at.port in ports(p))]
        owners = [p.name for p in facts.parties if at.port in ports(p)]
        yield rule.finding(
            str(at),
            f"{listed(writers(events))} is refused at {at}, {count_words(len(events))}"
            + (f"; {listed(dead)} ended." if dead else "."),
            [
                *(
                    [f"{host.name}: no socket listens on port {at.port}"]
                    if host and host.traces.sockets and not bound
                    else []
                ),
                *quoted(events),
            ],
            f"see who owns port {at.port} there (ss -ltnp), then point peers to the server that does",
            touches=[*there, *dead, *writers(events)],
            suffer=set(writers(events)) - set(owners),
            since=since(events),
            hypotheses=_live(at, dead),
        )


def count_words(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _live(at: Endpoint, dead: list[str]) -> tuple[Hypothesis, ...]:
    wrong = Hypothesis(
        "peers are sent to the wrong server or port",
        f"ss -ltnp on both hosts: which role owns the bootstrap port, and is it {at.port}?",
    )
    gone = Hypothesis(
        f"the server there is dead{' (' + listed(dead) + ')' if dead else ''}",
        f"look whether its process lives and what its log ends with; nc -z {at.host or 'HOST'} {at.port}",
    )
    bound = Hypothesis(
        "it is bound to loopback or another address", f"ss -ltn 'sport = :{at.port}' on that host"
    )
    return (gone, wrong) if dead else (wrong, gone, bound)
