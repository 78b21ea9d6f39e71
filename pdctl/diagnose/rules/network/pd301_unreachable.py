"""PD301: an address that does not answer the connect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.picture import Reach
from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.facts.missing import known


@rule("PD301", "no route to an engine", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The connect itself gets no reply, or there is no route or name for the address.

    What it looks like: neither refused nor silent after the connect: the packets do not come back.

    What else it could be: refused means the host is there and nothing listens (PD201); a connect that
    succeeds and then silence is the process (PD202).

    What to do: test the path from where pdctl runs, then from the router's host; a firewall that drops is
    told from a dead host by any other port of that host.
    """
    views: list[EngineView | RouterView] = [*facts.engines]
    if known(facts.router):
        views.append(facts.router)
    for host in dict.fromkeys(v.member.host for v in views):
        there = [v for v in views if v.member.host == host]
        lost = [v for v in there if v.reach is Reach.UNREACHABLE]
        if _gone(facts, host, there):
            yield _host(rule, host, there)
        else:
            yield from (_alone(rule, view) for view in lost)


def _gone(facts: Facts, host: str, there: Sequence[EngineView | RouterView]) -> bool:
    """Nothing on it answers, and neither does the host: where it was asked itself, of one engine too. In the
    seconds after its end a connection may still be open, and only silent.
    """
    reaches = {v.reach for v in there}
    if Reach.UNREACHABLE not in reaches or any(known(v.member.unit) for v in there):
        return False
    asked = facts.host(host)
    if asked is not None and not known(asked.clock):
        return reaches <= {Reach.UNREACHABLE, Reach.TIMED_OUT}
    return len(there) > 1 and len(reaches) == 1


def _host(rule: Rule, host: str, lost: Sequence[EngineView | RouterView]) -> Finding:
    """Neither the way to its engines nor the one to the host itself leads anywhere."""
    names = [view.name for view in lost]
    tests = [
        Hypothesis("the host is down", f"ping -c 2 {_address(lost[0])}, or its console"),
        Hypothesis("the network to it is cut", f"ping -c 2 {_address(lost[0])}   # from another host"),
    ]
    evidence = [f"{view.name} at {view.member.url}: {view.pair.second.detail}" for view in lost]
    evidence += [f"{host}: {lost[0].member.unit}"]
    said = f"Host {host} cannot be reached, and with it {listed(names)}."
    return rule.finding(host, said, evidence, "", touches=names, hypotheses=tests)


def _alone(rule: Rule, view: EngineView | RouterView) -> Finding:
    url = view.member.url
    tests = [
        Hypothesis("the host is down", f"ping -c 2 {_address(view)}"),
        Hypothesis("a firewall drops the port", f"curl -m 5 {url}/health   # from the host itself"),
        Hypothesis("the fleet file holds a wrong address", "grep -n address fleet.toml"),
    ]
    said = f"{view.name} at {url} cannot be reached: {view.pair.second.detail}."
    return rule.finding(view.name, said, [f"HTTP: {view.reach}"], "", hypotheses=tests)


def _address(view: EngineView | RouterView) -> str:
    return view.member.url.split("//")[1].split(":")[0]
