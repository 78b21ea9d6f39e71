"""PD106: prefill and decode disagree on what a KV page is."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.facts.missing import known

_FIELDS = ("model", "dtype", "page_size", "layout", "layers", "kv_heads", "head_dim")


@rule("PD106", "prefill and decode disagree", Severity.ERROR, ["engine.state"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Two engines of one cell differ in model, dtype, page size or KV layout.

    What it looks like: the link between them is refused, or, with engines that do not check, answers are
    fluent nonsense. Both engines are healthy alone. It starts with a deploy, never in the middle of a day.

    What else it could be: different TP sizes are allowed and are not this. Wrong text with equal
    fingerprints is a damaged transfer or a kernel, not configuration.

    What to do: give both the same model and page settings in the fleet file, then `pdctl deploy`.
    """
    for prefill, decode in facts.edges():
        p, d = prefill.state, decode.state
        if not known(p) or not known(d):
            continue
        lines = [
            f"{name}: {prefill.name} {p.fingerprint[name]}, {decode.name} {d.fingerprint[name]}"
            for name in _FIELDS
            if name in p.fingerprint and name in d.fingerprint and p.fingerprint[name] != d.fingerprint[name]
        ]
        if lines:
            names = [line.partition(":")[0] for line in lines]
            yield rule.finding(
                f"{prefill.name} -> {decode.name}",
                f"{prefill.name} and {decode.name} disagree on {', '.join(names)}; no KV can pass.",
                lines,
                f"make {', '.join(names)} equal in the fleet file, then: pdctl deploy",
                touches=[prefill.name, decode.name],
            )
