"""PD106: prefill and decode disagree on what a KV page is."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.fingerprint import differences
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.missing import known


@rule("PD106", "prefill and decode disagree", Severity.ERROR, ["engine.state"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Two engines of one cell differ in model, dtype or KV layout, or their page sizes do not divide.

    What it looks like: the link between them is refused, or, with engines that do not check, answers are
    fluent nonsense. Both engines are healthy alone. It starts with a deploy, never in the middle of a day.

    What else it could be: different TP sizes are allowed and are not this, nor are page sizes of which one
    is a multiple of the other (their transfers cost more writes). Wrong text with fitting fingerprints is a
    damaged transfer or a kernel, not configuration.

    What to do: `pdctl deploy`, where an engine runs with other arguments than the fleet file has; it refuses
    a fleet file that does not agree with itself. Model files that differ between hosts are copied anew; for
    engines of other kinds give both the same model and page settings in the fleet file first.
    """
    for prefill, decode in facts.edges():
        p, d = prefill.state, decode.state
        if not known(p) or not known(d):
            continue
        lines = differences(prefill.name, p, decode.name, d)
        if lines:
            names = [line.partition(":")[0] for line in lines]
            alike = p.kind == d.kind == "bundled" and "model" not in names
            yield rule.finding(
                f"{prefill.name} -> {decode.name}",
                f"{prefill.name} and {decode.name} disagree on {', '.join(names)}; no KV can pass.",
                lines,
                "pdctl deploy" if alike else f"make {', '.join(names)} equal, then: pdctl deploy",
                touches=[prefill.name, decode.name],
            )
