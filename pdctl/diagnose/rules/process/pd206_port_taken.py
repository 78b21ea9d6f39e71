"""PD206: a unit's port belongs to somebody else."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Reach
from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.missing import known
from pdctl.facts.ports import PortState


def _ports(view: EngineView | RouterView) -> set[int]:
    addresses = [view.member.url, view.member.bootstrap or ""]
    return {int(a.rpartition(":")[2]) for a in addresses if a}


@rule("PD206", "port held by a stranger", Severity.ERROR, ["units", "host.ports"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process that is none of the unit's listens on a port that the fleet file gives to the unit.

    What it looks like: the unit ends at once with exit code 73 and keeps coming back, or it never starts;
    meanwhile whoever holds the port may answer, so that a health check of the port alone is content.

    What else it could be: a left-over process of an earlier life of the same engine, which the evidence
    shows by its command line; an engine started by hand that answers as one is PD205.

    What to do: stop that process or its service, or give the unit another port in the fleet file and
    `pdctl deploy`. Then `pdctl restart NAME`, because a unit that failed too often is not started again.
    """
    views: list[EngineView | RouterView] = [*facts.engines]
    if known(facts.router):
        views.append(facts.router)
    for view in views:
        unit, host = view.member.unit, facts.host(view.member.host)
        if not known(unit) or not unit.wanted or host is None or not known(host.ports):
            continue
        if unit.state in ("absent", "orphaned") and view.reach is Reach.OK:
            continue  # PD205: an engine of this name answers there
        mine = view.member.pids
        taken = [p for p in host.ports if p.port in _ports(view) and p.strangers(mine)]
        if taken:
            yield rule.finding(
                view.name,
                f"{_listed(taken)} of {view.name} is {taken[0].words}.",
                [f"port {p.port} on {host.name}: {p.words}" for p in taken],
                _remedy(taken[0], view.name),
            )


def _listed(taken: list[PortState]) -> str:
    return f"port {taken[0].port}" if len(taken) == 1 else f"ports {', '.join(str(p.port) for p in taken)}"


def _remedy(port: PortState, name: str) -> str:
    holder = next(h for h in port.holders)
    if holder.service:
        return f"systemctl stop {holder.service}, then: pdctl restart {name}"
    return f"kill {holder.pid or 'PID'}, then: pdctl restart {name}"
