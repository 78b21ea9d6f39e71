"""PD341: the transfer engine reaches no connection to its peer."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import endpoint, recovered
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_NAMED = (
    *("PD201", "PD210", "PD211", "PD212", "PD213", "PD214", "PD304", "PD309", "PD311", "PD312", "PD319"),
    *("PD320", "PD321", "PD322", "PD327", "PD331", "PD335", "PD410", "PD510", "PD514", "PD528"),
)
_FEW = 5  # tries that a peer which came late explains
_DIRECT = "kv_transfer_config.kv_connector_extra_config.use_ascend_direct"


@rule("PD341", "transfer engines do not connect", Severity.ERROR, ["logs"], echo_of=_NAMED)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The side that moves KV knows its peer's address and gets no connection there; requests fail one by one.

    What it looks like: "Failed to connect to target ADDRESS", "Cannot make connection for endpoint
    ADDRESS@NIC" and a transfer that failed right after it, for every request, from the first on; both engines
    are healthy by HTTP, because that takes another way.

    What else it could be: the peer ended or was restarted (PD201, PD510); a refusal or a timeout that says so
    is PD304 or PD312.

    What to do: from the side that writes it, reach the very port it names (nc -vz); then compare what the
    transport needs on both sides: driver and toolkit versions, its switch in the connector's settings, the
    interface it takes.
    """
    events = facts.events("transfer.no_connection")
    if len(events) < 2 or (len(events) < _FEW and recovered(facts, events)):
        return
    names = writers(events)
    gone = [p.name for p in facts.parties if died(p)]
    where = list(dict.fromkeys(str(at) for e in events if (at := endpoint(e.line))))
    there = where[0] if where else "PEER:PORT"
    yield rule.finding(
        listed(names),
        f"The transfer engine of {listed(names)} gets no connection to {listed(where[:3] or ['its peer'])}.",
        [*quoted(events), *([f"{listed(gone)} ended"] if gone else [])],
        f"from {names[0]}: nc -vz {there.replace(':', ' ')}; compare both sides' transport",
        touches=partners(facts, names),
        since=since(events),
        hypotheses=_live(facts, events),
    )


def _live(facts: Facts, events: list[Event]) -> tuple[Hypothesis, ...]:
    ascend = any("ascend" in e.line.lower() or "hccl" in e.line.lower() for e in events)
    bare = not any(_DIRECT in p.traces.settings for p in facts.engines)
    path = Hypothesis(
        "the transport's ports are not open between the two (pod network, firewall), though HTTP is",
        "nc -vz to the very port of the line, from the host or container that writes it",
    )
    address = Hypothesis(
        "the address it announces is of another interface",
        "ip addr on the peer: is it that of the network they share? Set the host variable, try again",
    )
    if not ascend:
        return (path, address)
    toolkit = Hypothesis(
        "AscendDirect is not set up on both sides: "
        + ("use_ascend_direct is not set, or " if bare else "")
        + "CANN or the driver is older than it needs",
        'add "use_ascend_direct": true to kv_connector_extra_config; compare CANN and driver versions',
    )
    return (toolkit, path, address)
