"""PD301: an address that does not answer the connect."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Reach
from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
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
    for view in views:
        if view.reach is Reach.UNREACHABLE:
            url = view.member.url
            tests = [
                Hypothesis("the host is down", f"ping -c 2 {url.split('//')[1].split(':')[0]}"),
                Hypothesis("a firewall drops the port", f"curl -m 5 {url}/health   # from the host itself"),
                Hypothesis("the fleet file holds a wrong address", "grep -n address fleet.toml"),
            ]
            said = f"{view.name} at {url} cannot be reached: {view.pair.second.detail}."
            yield rule.finding(view.name, said, [f"HTTP: {view.reach}"], "", hypotheses=tests)
