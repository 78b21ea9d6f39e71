"""PD205: a process that nobody looks after."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.missing import known


@rule("PD205", "process without a supervisor", Severity.WARNING, ["units"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine's process runs, and the keeper that would restart and log it is gone.

    What it looks like: everything works until the process ends; then it stays down.

    What else it could be: after `pdctl down` an engine that still listens was started by hand.

    What to do: `pdctl restart NAME` stops the process and starts it under a keeper again.
    """
    for member in facts.members():
        unit = member.unit
        if known(unit) and unit.state == "orphaned":
            said = f"{member.name} runs without a supervisor."
            yield rule.finding(member.name, said, [unit.reason or "orphaned"], f"pdctl restart {member.name}")
