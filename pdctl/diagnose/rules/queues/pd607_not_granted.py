"""PD607: pages lie free and are not granted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.ledger import Entry, join
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, some, span


@rule(
    "PD607",
    "free pages not granted",
    Severity.ERROR,
    ["engine.state"],
    echo_of=["PD606", "PD202"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode keeps requests waiting for pages although enough of them are free.

    What it looks like: the inflight queue fills as with a saturated decode, but decode's free pages cover
    what the head of its queue needs, in two samples, and it is still not granted.

    What else it could be: pages in use are backpressure (PD603); pages in quarantine are not free (PD605).

    What to do: the requests end at PD_DECODE_PREALLOC_TIMEOUT. Restart that decode with its cell,
    `pdctl restart --co CELL`, and keep its state document: the accounting of pages is wrong.
    """
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in join(facts):
        if entry.verdict == "stuck" and entry.lost == "grant" and entry.holder:
            groups[entry.holder].append(entry)
    for name, entries in groups.items():
        view = facts.engine(name)
        cell = view.member.cell if view else ""
        oldest = max(entries, key=lambda e: e.stage_age)
        yield rule.finding(
            name,
            f"{name} keeps {count(len(entries), 'request')} waiting for pages that are free, "
            f"the oldest for {span(oldest.stage_age)}.",
            some([f"{e.id} room {e.room}: {e.why}" for e in entries]),
            f"pdctl restart --co {cell}",
            since=oldest.since,
        )
