"""PD614: metadata slots are lost while KV is not."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import aborts
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import FULL, values
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD614", "metadata slots leak", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Requests that decode aborted stay in the prefill's waiting queue and keep their metadata slots.

    What it looks like: the number of requests that a prefill computes at a time falls from hour to hour;
    free metadata slots fall while KV usage does not rise; orphans wait with a failed status.

    What else it could be: KV usage that rises as well is a KV leak (PD611). Falling throughput with all
    slots free is not this.

    What to do: restart the prefill, `pdctl restart NAME`; take a build that drops failed requests from the
    waiting queue.
    """
    for view in facts.engines:
        free, usage = values(view.traces, "metadata_free"), view.traces.last("kv_usage")
        if len(free) < 2 or free[-1] >= free[0] / 2 or (usage is not None and usage >= FULL):
            continue
        cancelled = aborts.evidence(*(e.traces for e in facts.engines))
        shown = "" if usage is None else f", KV {usage:.0%} in use"
        yield rule.finding(
            view.name,
            f"{view.name} loses metadata slots: {free[0]:.0f} free, then {free[-1]:.0f}, while its KV is not "
            "full. Aborted requests in its waiting queue keep them.",
            [f"free metadata slots: {', '.join(f'{n:.0f}' for n in free)}{shown}", *cancelled],
            f"pdctl restart {view.name}",
        )
