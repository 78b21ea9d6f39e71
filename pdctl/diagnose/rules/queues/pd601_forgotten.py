"""PD601: requests that the router counts and no engine knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.ledger import Entry, join
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, listed, some, span
from pdctl.facts.missing import known


def _restarts(facts: Facts, names: list[str], entries: list[Entry]) -> list[str]:
    """Engines that began their life after the oldest of these requests was admitted."""
    lines = []
    for name in names:
        view = facts.engine(name)
        state = view.state if view else None
        if state is None or not known(state) or not known(state.started_at):
            continue
        lost = [e for e in entries if facts.at - e.age < state.started_at]
        if lost:
            ago = span(facts.at - state.started_at)
            lines.append(f"{name} started {ago} ago, after {len(lost)} of them were admitted")
    return lines


@rule(
    "PD601",
    "forgotten requests",
    Severity.ERROR,
    ["router.requests", "engine.state"],
    echo_of=["PD201", "PD202", "PD203", "PD501", "PD204"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The router waits for requests that every engine answers not to have.

    What it looks like: engines idle, queues empty, the router's count of active requests stays above
    zero; agents hang after a round or two. No error and no log line.

    What else it could be: a request between two samples is not forgotten (it must be in the router's
    ledger in both, for seconds, with engines that answer freshly). An engine that does not answer may
    still hold it: that is "unknown" in the ledger, and PD202 or PD201 leads.

    What to do: abort them at the router, `pdctl abort ID`, so that clients get an answer; the
    router's idle deadline does it later. If an engine was restarted under them, nothing else is wrong;
    if none was, keep the evidence: an engine dropped a request without a word.
    """
    groups: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for entry in join(facts):
        if entry.verdict == "forgotten":
            groups[tuple(n for n in (entry.prefill, entry.decode) if n)].append(entry)
    for names, entries in groups.items():
        oldest = max(entries, key=lambda e: e.age)
        lines = [f"{e.id} room {e.room}: {e.stage} for {span(e.stage_age)}; {e.why}" for e in entries]
        yield rule.finding(
            listed(names) if names else "router",
            f"The router counts {count(len(entries), 'request')} that no engine knows, "
            f"the oldest for {span(oldest.stage_age)}.",
            [*_restarts(facts, list(names), entries), *some(lines)],
            f"pdctl abort {oldest.id}",
            touches=names,
            since=oldest.since,
        )
