"""PD326: all ranks were given the same port."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD326", "ranks share one port", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Several ranks of one engine compute the same data parallel rank and with it the same port.

    What it looks like: the start hangs; every worker says dp_rank 0 and the same IPC or TCP address, one of
    them owns it and the others are silent.

    What else it could be: different engines that want one port are PD305. Ranks of one tensor parallel group
    rightly share a dp_rank, but not a port that each of them binds.

    What to do: derive the rank from the tensor parallel rank under data parallel attention, or upgrade the
    connector; check that each worker logs another port.
    """
    for party in facts.parties:
        by: dict[str, dict[str, str]] = defaultdict(dict)
        events = list(party.traces.of("net.rank_port"))
        for event in events:
            by[event.values["port"]].setdefault(event.rank or str(event.order), event.values["dp"])
        shared = {port: ranks for port, ranks in by.items() if len(ranks) > 1}
        if not shared or any(party.traces.of("net.ready")):
            continue
        port, ranks = next(iter(shared.items()))
        yield rule.finding(
            party.name,
            f"{len(ranks)} ranks of {party.name} ({listed(sorted(ranks))}) take dp_rank "
            f"{listed(sorted(set(ranks.values())))} and bind the same {port}.",
            quoted([e for e in events if e.values["port"] == port]),
            "derive the data parallel rank from the tensor parallel rank, or upgrade the connector",
            since=since(events),
        )
