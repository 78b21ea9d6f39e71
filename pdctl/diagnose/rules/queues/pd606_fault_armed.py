"""PD606: a fault point is armed."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count
from pdctl.facts.missing import known


@rule("PD606", "fault point armed", Severity.WARNING, ["engine.state"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A drill's fault point is armed on an engine: it will break requests on purpose, or did.

    What it looks like: whatever the fault does: stall-transfer and lose-want pin requests on the prefill,
    lose-done leaves decode waiting, slow-transfer stretches dwell, refuse-pages starves decode, stop-steps
    leaves an engine that answers and computes nothing.

    What else it could be: nothing; engines without a drill token cannot have one armed.

    What to do: `pdctl drill disarm ENGINE`. A drill that was interrupted leaves this behind; tune-timeout
    removes what it armed on its next run.
    """
    for view in facts.engines:
        state = view.state
        for fault in state.armed if known(state) else ():
            left = "until disarmed" if fault.count == 0 else f"count {fault.count}"
            acted = f", it has acted {count(fault.hits, 'time')}" if fault.hits else ""
            yield rule.finding(
                view.name,
                f"The fault point {fault.name} is armed on {view.name}{acted}.",
                [f"{fault.name}: {left}, hits {fault.hits}, value {fault.value:g}"],
                f"pdctl drill disarm {view.name}",
            )
