"""PD440: ranks of one group stand in different collectives."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.callsites import mains, sites
from pdctl.diagnose.collectives import launched, timeouts
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.progress import stall, stands
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count, listed, some

_AGAIN = (
    Hypothesis("ranks are out of step", "ncclras once more: the same counts are frozen"),
    Hypothesis("they only run a little apart", "ncclras once more: counts that grow are work"),
)


@rule("PD440", "collectives out of step", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Ranks of one group wait in different collectives, so that none of them can end.

    What it looks like: everything hangs, even at one request. Stacks of the ranks show different call sites
    of all_reduce, broadcast and the like; NCCL's RAS shows operation counts that differ and do not move;
    watchdogs name different operations or sequence numbers.

    What else it could be: equal counts that stand still are a stuck kernel or host (PD441). All ranks but
    one at the same site is one rank that did not come (PD451). Counts that move are work.

    What to do: restart the engine as a whole (`pdctl restart --co CELL`); then look for what makes ranks
    branch apart: a flag or a request that not every rank sees, queues that differ. The call sites are the
    report.
    """
    for party in facts.parties:
        found = sites(party.traces) if stands(party.traces, facts.at) else {}
        waiting = {s: p for s, p in found.items() if s.collective}
        if len(waiting) > 1:
            lines = [f"{listed(sorted(p))}: {s.place}" for s, p in waiting.items()]
            remedy, why = _remedy(party)
            yield rule.finding(
                party.name,
                f"Ranks of {party.name} wait in {len(waiting)} different collectives.",
                [*some(lines, 8), *why],
                remedy,
            )
    for name, caught in timeouts(facts).items():
        what = {(e.values.get("op"), e.values.get("seq")) for e in caught}
        if len(what) > 1 and len({e.values.get("rank") for e in caught}) > 1:
            ops = listed(sorted(f"{op} #{seq}" for op, seq in what))
            yield rule.finding(
                name,
                f"Ranks of {name} timed out in different collectives: {ops}.",
                quoted(caught, 8),
                f"pdctl restart --co {_cell(facts, name)}",
                since=since(caught),
            )
    for name, counts in launched(facts).items():
        once = counts.dumps == 1 and any(
            stall(p.traces) for p in facts.parties if name in (p.member.host, p.name)
        )
        if counts.spread and (counts.still or once):
            yield rule.finding(
                name,
                f"NCCL operation counts of ranks differ by {counts.spread} and stand: they are out of step.",
                [
                    f"launched operations: {listed(counts.values)} ({count(counts.dumps, 'dump')})",
                    *counts.lines,
                ],
                "restart all ranks of the group together",
                touches=[name, *_here(facts, name)],
                hypotheses=_AGAIN if once else [],
            )


_ENCODER = re.compile(r"(?i)vision|image|encoder|vit\b|mm_utils|multimodal")


def _remedy(party: Party) -> tuple[str, list[str]]:
    """What keeps ranks together, and why: with data parallel attention an encoder that is split over all
    ranks is entered by those of one group alone, the one that was sent the picture.
    """
    again = f"pdctl restart --co {party.member.cell}"
    seen = party.traces.settings
    inside = [s for s in mains(party.traces) if any(_ENCODER.search(f) for f in s.frames)]
    split = seen.get("enable_dp_attention", "").lower() in ("true", "1", "") and "enable_dp_attention" in seen
    if not split or not inside or len(inside) == len(mains(party.traces)):
        return again, []
    frame = next(f for f in inside[0].frames if _ENCODER.search(f))
    many = f"{len(inside)} of {len(mains(party.traces))} ranks"
    said = f"{many} are in an encoder ({frame}): their group alone got its request"
    return f"start it with --mm-enable-dp-encoder (each rank its own encoder), then: {again}", [said]


def _cell(facts: Facts, name: str) -> str:
    party = facts.party(name)
    return party.member.cell if party else "CELL"


def _here(facts: Facts, host: str) -> list[str]:
    return [p.name for p in facts.parties if host in (p.member.host, p.name)]
