"""PD205: a process that nobody looks after."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Reach
from pdctl.diagnose.facts import EngineView, Facts, RouterView
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.missing import known


@rule("PD205", "process without a supervisor", Severity.WARNING, ["units"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine's process runs, and the keeper that would restart and log it is gone.

    What it looks like: everything works until the process ends; then it stays down.

    What else it could be: an engine that answers while its unit is stopped or absent was started by hand
    or by another fleet, or the host's folder (`.pdctl/host`) was moved away from under it.

    What to do: `pdctl restart NAME` stops an orphan and starts it under a keeper again. Where no unit is
    known, put the folder back, or end the process that `ss` names and `pdctl deploy`.
    """
    for member in facts.members():
        unit = member.unit
        if known(unit) and unit.state == "orphaned":
            said = f"{member.name} runs without a supervisor."
            yield rule.finding(member.name, said, [unit.reason or "orphaned"], f"pdctl restart {member.name}")
    views: list[EngineView | RouterView] = [*facts.engines]
    if known(facts.router):
        views.append(facts.router)
    for view in views:
        unit = view.member.unit
        if known(unit) and unit.state in ("absent", "stopped") and view.reach is Reach.OK:
            said = f"{view.name} answers, and the unit that should run it is {unit.state}."
            evidence = [f"HTTP: ok at {view.member.url}", unit.reason or f"unit state {unit.state}"]
            port = view.member.url.rpartition(":")[2]
            yield rule.finding(view.name, said, evidence, f"ss -ltnp 'sport = :{port}'")
