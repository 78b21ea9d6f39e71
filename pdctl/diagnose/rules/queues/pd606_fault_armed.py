"""PD606: a fault point is armed."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import PUTS_BACK, Facts
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

    What to do: `pdctl drill disarm ENGINE`; `pdctl resume` where a run that is gone has armed it, which puts
    back all else that it set, too.
    """
    for view in facts.engines:
        state = view.state
        for fault in state.armed if known(state) else ():
            left = "until disarmed" if fault.count == 0 else f"count {fault.count}"
            acted = f", it has acted {count(fault.hits, 'time')}" if fault.hits else ""
            lines = [f"{fault.name}: {left}, hits {fault.hits}, value {fault.value:g}"]
            gone = facts.armed_behind(view.name, fault.name)
            yield rule.finding(
                view.name,
                f"The fault point {fault.name} is armed on {view.name}{acted}.",
                [*lines, *([gone.words] if gone else [])],
                PUTS_BACK if gone else f"pdctl drill disarm {view.name}",
            )
