"""PD302: a host does not reach the address of an engine that its units need."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts, HostView
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.facts.missing import known
from pdctl.facts.reach import REFUSED


def _wanted(facts: Facts) -> Iterator[tuple[str, str, EngineView, str]]:
    """(host, unit on it, engine that it must reach, address): decodes dial prefills, the router everybody."""
    for prefill, decode in facts.edges():
        if prefill.member.bootstrap:
            yield decode.member.host, decode.name, prefill, prefill.member.bootstrap
    if known(facts.router):
        for view in facts.engines:
            address = view.member.url.removeprefix("http://")
            yield facts.router.member.host, facts.router.name, view, address


def _why(host: HostView, target: EngineView, address: str) -> str:
    """What went wrong on the way, "" for nothing or for what the engine itself explains."""
    if not known(host.reach) or address not in host.reach:
        return ""
    error, state = host.reach[address].error, target.state
    # Down is PD201; one that loads its model listens for links when that is done.
    away = not target.fresh or (known(state) and state.status in ("starting", "stopping"))
    return "" if error == REFUSED and away else error


@rule(
    "PD302",
    "peers do not reach each other",
    Severity.ERROR,
    ["host.reach"],
    echo_of=["PD301", "PD201", "PD203", "PD206"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A connect from the host of one unit to the address of another fails, tried on that host itself.

    What it looks like: every engine answers `pdctl`, and no link comes up, or the router sees an engine as
    away. Refused while the engine runs: the address leads elsewhere, as 127.0.0.1 does from another host.

    What else it could be: when the engine is down (PD201) or its host is away (PD301), this is an effect.
    No answer at all is a firewall that drops, or a route that leads nowhere.

    What to do: run `pdctl check`, which tries every address and packet size between the hosts; open the
    port, or correct `address` of the host in the fleet file and `pdctl deploy`.
    """
    for name, unit, target, address in _wanted(facts):
        host = facts.host(name)
        error = _why(host, target, address) if host is not None else ""
        if not error:
            continue
        yield rule.finding(
            f"{unit} -> {target.name}",
            f"{name}, the host of {unit}, does not reach {target.name} at {address}: {error}.",
            [f"connect from {name} to {address}: {error}"],
            "pdctl check",
            touches=[unit, target.name],
            hypotheses=() if error == REFUSED else _tests(name, address),
        )


def _tests(name: str, address: str) -> list[Hypothesis]:
    host, _, port = address.rpartition(":")
    return [
        Hypothesis("a firewall drops the packets", f"nc -vz -w 2 {host} {port}   # on {name}"),
        Hypothesis("the route leads elsewhere", f"ip route get {host}   # on {name}"),
    ]
