"""PD416: a GPU is held back by heat or power."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD416", "a GPU is throttled", Severity.WARNING, [], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A GPU runs slower than it can, for heat or power, and its whole group waits for it.

    What it looks like: nvidia-smi -q shows a slowdown as Active (HW thermal, HW power brake); one rank is
    slower than the others and all of them are as slow as it.

    What else it could be: "SW Power Cap" under full load is usual and not meant here.

    What to do: look at fans, inlet temperature and power supply of the host; take it out if it stays.
    """
    for host in facts.hosts:
        events = [e for e in host.traces.events if e.sign == "gpu.throttled"]
        if events:
            here = [p.name for p in facts.parties if p.member.host == host.name]
            why = dict.fromkeys(e.values["why"].strip() for e in events)
            yield rule.finding(
                host.name,
                f"GPUs of {host.name} are throttled: {listed(why)}.",
                quoted(events),
                f"look at cooling and power of {host.name}; take it out of service if it stays",
                touches=[host.name, *here],
            )
