"""PD341: the transfer engine reaches no connection to its peer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import crossed_rails, endpoint, recovered
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import EngineView, Facts
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
    given_up = any("inactive" in e.line for e in events)
    if (len(events) < 2 and not given_up) or (len(events) < _FEW and recovered(facts, events)):
        return
    names = writers(events)
    gone = [p.name for p in facts.parties if died(p)]
    where = list(dict.fromkeys(str(at) for e in events if (at := endpoint(e.line))))
    there = where[0] if where else "PEER:PORT"
    live = _live(facts, events)
    way = f"from {names[0]}: nc -vz {there.replace(':', ' ')}; compare both sides' transport"
    yield rule.finding(
        listed(names),
        f"The transfer engine of {listed(names)} gets no connection to {listed(where[:3] or ['its peer'])}.",
        [*quoted([*events, *facts.events("verbs.packet")]), *([f"{listed(gone)} ended"] if gone else [])],
        live[0].test if "rails" in live[0].text else way,
        touches=partners(facts, names),
        since=since(events),
        hypotheses=live,
    )


_NIC_SETTINGS = ("disaggregation_ib_device", "kv_transfer_config.kv_connector_extra_config.device_name")


def _nics(view: EngineView) -> frozenset[str]:
    told = next((view.traces.settings[n] for n in _NIC_SETTINGS if view.traces.settings.get(n)), "")
    return frozenset(re.findall(r"\b[a-z]\w*_\w*\d\b", told))


def _apart(facts: Facts) -> str:
    """ "mlx5_0 to mlx5_4" where the two sides were given NICs of which none is the same."""
    for prefill, decode in facts.edges():
        one, other = _nics(prefill), _nics(decode)
        if one and other and not one & other:
            return f"{listed(sorted(one))} to {listed(sorted(other))}"
    return ""


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
    packets = facts.events("verbs.packet")
    rails = crossed_rails([*events, *packets]) or _apart(facts)
    if rails:
        nics = Hypothesis(
            f"NICs of different rails do not reach each other ({rails})",
            "give both sides one NIC (--disaggregation-ib-device) and send one request; then ib_write_bw "
            "between the pairs that fail",
        )
        return (nics, path)
    if not ascend:
        return (path, address)
    toolkit = Hypothesis(
        "AscendDirect is not set up on both sides: "
        + ("use_ascend_direct is not set, or " if bare else "")
        + "CANN or the driver is older than it needs",
        'add "use_ascend_direct": true to kv_connector_extra_config; compare CANN and driver versions',
    )
    return (toolkit, path, address)
