"""PD451: one rank or GPU is not where all others wait."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import gpus
from pdctl.diagnose.callsites import sites
from pdctl.diagnose.collectives import timeouts
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import failed_before
from pdctl.diagnose.progress import stands
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


def _tests(odd: str) -> list[Hypothesis]:
    return [
        Hypothesis(
            f"{odd} is stuck or failed", f"py-spy dump and dmesg of {odd} alone; then a run without it"
        ),
        Hypothesis(
            f"{odd} took another branch and will never join",
            "compare its call site with the others'; look for a collective that not every rank runs",
        ),
    ]


@rule("PD451", "the odd rank", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """All ranks but one wait in the same collective: the one that is missing holds everybody.

    What it looks like: the same NCCL kernel or call site on all ranks but one; all GPUs at 100 % and low
    power but one; timeouts of all ranks of a group but one.

    What else it could be: several call sites are ranks out of step (PD440); all at the same one is a stuck
    kernel or fabric (PD441).

    What to do: look at the odd one alone: its stack, its kernel log, its GPU. The others only wait.
    """
    yield from _by_stacks(rule, facts)
    yield from _by_gpu(rule, facts)
    yield from _by_timeouts(rule, facts)


def _by_stacks(rule: Rule, facts: Facts) -> Iterator[Finding]:
    for party in facts.parties:
        found = sites(party.traces) if stands(party.traces, facts.at) else {}
        waiting = {s: p for s, p in found.items() if s.collective}
        apart = [(s, p) for s, p in found.items() if not s.collective and not s.neighbour]
        names = [name for processes in waiting.values() for name in processes]
        if len({s.collective for s in waiting}) != 1 or len(apart) != 1 or len(apart[0][1]) != 1 or not names:
            continue
        odd, place = apart[0][1][0], apart[0][0].place
        waits = next(iter(waiting)).collective
        yield rule.finding(
            party.name,
            f"All ranks of {party.name} but {odd} wait in {waits}."
            if len(names) > 1
            else f"{names[0]} waits in {waits}, and {odd} is elsewhere.",
            [f"{listed(sorted(names))}: {waits}", f"{odd}: {place}"],
            f"pdctl restart --co {party.member.cell}",
            hypotheses=_tests(odd),
        )


def _by_gpu(rule: Rule, facts: Facts) -> Iterator[Finding]:
    for host in facts.hosts:
        cards = gpus.newest(host.traces.gpus)
        odd = gpus.odd(cards)
        waiting = [g for g in cards if gpus.spins(g) and g is not odd]
        here = [p for p in facts.parties if p.member.host == host.name]
        if odd is None or len(waiting) < 2 or any(not stands(p.traces, facts.at) for p in here):
            continue
        yield rule.finding(
            host.name,
            f"All GPUs of {host.name} wait at low power but GPU {odd.index}: that rank holds the others.",
            [gpus.told(odd), *map(gpus.told, waiting[:4])],
            f"look at the process on GPU {odd.index} and at dmesg of {host.name}",
            touches=[host.name, *(p.name for p in here)],
            hypotheses=_tests(f"the rank on GPU {odd.index}"),
        )


def _by_timeouts(rule: Rule, facts: Facts) -> Iterator[Finding]:
    for name, lines in timeouts(facts).items():
        party = facts.party(name)
        size = party.traces.settings.get("tp", "") if party else ""
        ranks = {int(e.values["rank"]) for e in lines if e.values.get("rank", "").isdigit()}
        if (
            not size.isdigit()
            or len(ranks) != int(size) - 1
            or len({e.values.get("seq") for e in lines}) != 1
        ):
            continue
        if party is not None and failed_before(party.traces, lines[0].order):
            continue  # it said how it failed
        missing = next(iter(set(range(int(size))) - ranks), None)
        if missing is None or party is None:
            continue
        yield rule.finding(
            name,
            f"All ranks of {name} but one timed out in one collective: rank {missing} did not come.",
            quoted(lines, 4),
            f"pdctl restart --co {party.member.cell}",
            since=since(lines),
            hypotheses=_tests(f"rank {missing}"),
        )
