"""PD680: a tuning knob was changed since the last good start, and something that it can break is broken."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.progress import stall
from pdctl.diagnose.quality import poor, symptoms
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.trials import Knob, cured, knobs, told
from pdctl.diagnose.words import listed


def _trouble(facts: Facts, party: Party) -> list[str]:
    """What is wrong with it that a kernel's tuning can cause; empty when it is well."""
    found = stall(party.traces)
    lines = [found.told] if found else []
    lines += quoted(symptoms(facts), 2) + quoted(poor(facts), 3)
    lines += quoted(list(party.traces.of("gpu.illegal_access", "watchdog.fired")), 2)
    if died(party) and not lines:
        lines.append(f"{party.name} ended")
    return lines


@rule("PD680", "tuning knob changed", Severity.ERROR, ["engine.reach"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A setting that only tunes kernels (splits, CTAs, graphs, overlap) differs from the last good start.

    What it looks like: long contexts hang, answers go wrong or decode is several times slower from the day
    of the change, on this engine alone. It passes for a transfer stall, because decode stops taking
    requests.

    What else it could be: the change may be innocent: it is a live suspect until it was taken back. Trouble
    that is older than the change is not its.

    What to do: take the knob back on one engine and watch it for as long as the trouble took to show.
    Tuning is tested with the longest context and under load, not with one prompt.
    """
    for party in facts.engines:
        found = knobs(party.name, party.traces)
        proof = [c for knob in found for c in cured(facts, knob.kind) if c.name == knob.name]
        trouble = _trouble(facts, party) if found else []
        if not trouble and not proof:
            continue
        yield rule.finding(
            party.name,
            f"{listed(k.name for k in found)} of {party.name} changed since its last good start"
            + (", and taking it back cured it." if proof else "."),
            [*(k.told for k in found), *trouble, *map(told, proof)],
            f"set {found[0].name} back to {found[0].was or 'its default'}, then: pdctl deploy",
            since=_begun(party),
            hypotheses=[] if proof else _tests(found[0]),
        )
    yield from _told(rule, facts)


def _begun(party: Party) -> float | None:
    """The earliest moment of this life that is shown: the knob was turned before it."""
    seen = [
        at
        for at in (*(e.at for e in party.traces.events), *(r.at for r in party.traces.readings))
        if at is not None
    ]
    return party.traces.started_at or min(seen, default=None)


def _tests(knob: Knob) -> list[Hypothesis]:
    return [
        Hypothesis(
            f"{knob.name} is outside what its kernel can do",
            f"set {knob.name} back to {knob.was or 'its default'} on one engine, same load, longest context",
        ),
        Hypothesis(
            "the change is innocent and the trouble has another cause",
            "does the trouble go on with the knob taken back?",
        ),
    ]


def _told(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A split knob that somebody took back and so ended the trouble."""
    changes = cured(facts, "split")
    if not changes or any(knobs(p.name, p.traces) for p in facts.engines):
        return
    names = [c.party for c in changes if c.party] or [e.name for e in facts.engines]
    yield rule.finding(
        listed(names),
        f"{changes[0].name} was outside what its kernel can do: taking it back cured it.",
        [*map(told, changes), *quoted(symptoms(facts), 3)],
        f"leave {changes[0].name} at its default",
        touches=names,
    )
