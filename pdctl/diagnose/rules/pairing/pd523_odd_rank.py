"""PD523: one rank has an error of its own, the others only repeat that somebody failed."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rooms import Kind, failures
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count


@rule("PD523", "one rank failed, the others repeat it", Severity.ERROR, ["logs"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Ranks agree on failure by the smallest status, so one rank's error fails the room on all of them.

    What it looks like: many lines "unknown reason from another rank", and one rank whose message differs:
    that one is the truth. Health and the client's HTTP status may be 200 throughout.

    What else it could be: without any differing line the log of the failing rank is not here: collect all
    ranks' logs.

    What to do: read that rank's line; for a memory or protection error check the registration of its GPU
    memory and which NIC it uses; compare the rank's GPU and NIC with the others'.
    """
    for view in facts.engines:
        found = failures(facts, view.name)
        echoes = [f for f in found if f.kind is Kind.ECHO]
        own = [f for f in found if f.kind in (Kind.OWN, Kind.LOST_PEER)]
        odd = sorted({f.event.rank for f in own if f.event.rank})
        if not echoes or not own:
            continue
        rank = odd[0].replace("RANK", "rank ") if len(odd) == 1 else "the rank that says so"
        first = own[0].event
        yield rule.finding(
            view.name,
            f"{view.name}: {rank} has the error, {count(len(echoes), 'line')} of other ranks only repeat it.",
            [*quoted([f.event for f in own]), *quoted([echoes[0].event], 1)],
            f"pdctl logs {view.name}",
            touches=[view.name],
            since=since([first]),
            hypotheses=(
                Hypothesis(
                    f"memory registration or permission on {rank}",
                    "check memlock, GDR or dma-buf and page alignment of that rank's process",
                ),
                Hypothesis(
                    f"the NIC or GPU of {rank}",
                    "swap its device with another rank's: does the error stay with the device?",
                ),
            ),
        )
