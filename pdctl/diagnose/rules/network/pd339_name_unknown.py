"""PD339: a name that servers were given does not resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import recovered
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.progress import moves
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_NAME = re.compile(
    r"(?:host(?:name)?|addresses of|lookup|resolve|to|for|host=)\W{1,3}"
    r"(?P<name>[A-Za-z][\w-]*(?:\.[\w-]+)*)(?=[\s,:'\")/;]|$)"
)
_DOTTED = re.compile(r"(?<![\w/.-])(?P<name>[a-z][\w-]*(?:\.[a-z][\w-]+)+)(?![\w/(.-])")
_SOURCE = re.compile(r"\.(?:py|cpp|cc|c|rs|go|so|hpp|h)$")
_ADDRESS = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3}){3}|\[?[0-9A-Fa-f]*:[0-9A-Fa-f:]+\]?)$")
_SETTLED = 60.0  # seconds in which a name that was just made is found


@rule("PD339", "a name does not resolve", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server looks for a peer, a rank or a store by a name that its resolver does not know.

    What it looks like: "Name or service not known", "Temporary failure in name resolution", "no such host";
    ranks never find one another, or the start ends. Ping by address works.

    What else it could be: the name of a pod that is starting is unknown for seconds, until its service has
    an endpoint. A name that resolves to the wrong address is refused or times out (PD304, PD312).

    What to do: `getent hosts NAME` on the very host or in the very container. In Kubernetes the pod needs
    hostname and subdomain, and a headless service that publishes addresses that are not ready.
    """
    lines = [e for e in facts.events("net.no_name") if not recovered(facts, [e])]
    lines = [e for e in lines if _stands(facts, e.party, [o for o in lines if o.party == e.party])]
    if not lines:
        return
    if literal := next((e for e in lines if _ADDRESS.match(e.values.get("host", ""))), None):
        yield _family(rule, facts, literal, lines)
        return
    names = list(dict.fromkeys(n for e in lines if (n := _name(e))))
    what = listed(names[:3]) if names else "the name of its peer"
    yield rule.finding(
        listed(writers(lines)),
        f"{listed(writers(lines))} cannot resolve {what}.",
        quoted(lines),
        f"getent hosts {names[0] if names else 'NAME'} there; mend DNS, the service or /etc/hosts",
        touches=writers(lines),
        since=since(lines),
    )


def _family(rule: Rule, facts: Facts, event: Event, lines: list[Event]) -> Finding:
    """An address needs no resolver: where it cannot be used, it is of the other family than asked for."""
    party, host = facts.party(event.party), event.values["host"]
    wanted = {n: v for n, v in (party.traces.environ if party else {}).items() if "IPV6" in n.upper()}
    asks = [f"{event.party}: {n}={v}" for n, v in wanted.items()]
    turn = " and ".join(sorted(wanted)) or "the IPv6 switch (MC_USE_IPV6)"
    mixed = bool(wanted) and ":" not in host
    return rule.finding(
        event.party,
        f"{event.party} cannot use the address {host} of its peer"
        + (
            f": it was told to use IPv6 ({turn}) and this is IPv4."
            if mixed
            else ": it looks for another family."
        ),
        [*asks, *quoted(lines)],
        f"unset {turn} on both sides, or give every side an IPv6 address; then: pdctl restart --co "
        + (party.member.cell if party else "CELL"),
        touches=partners(facts, [event.party]),
        since=since(lines),
        hypotheses=()
        if mixed
        else (
            Hypothesis(
                "IPv4 and IPv6 are mixed", "env | grep -i ipv6 on both sides; the address each announces"
            ),
            Hypothesis("the address was written wrongly", "compare it with ip addr on the peer"),
        ),
    )


def _stands(facts: Facts, name: str, lines: list[Event]) -> bool:
    """Its writer ended, or tried for longer than a new name takes; or an engine that said nothing since."""
    party = facts.party(name)
    times = [e.at for e in lines if e.at is not None]
    if (party is not None and died(party)) or (times and max(times) - min(times) > _SETTLED):
        return True
    silent = not times or facts.at - max(times) > _SETTLED
    return silent and isinstance(party, EngineView) and not moves(party.traces)


def _name(event: Event) -> str:
    for form in (_NAME, _DOTTED):
        for found in form.finditer(event.line):
            if not _SOURCE.search(found["name"]) and "." in found["name"]:
                return found["name"]
    return ""
