"""PD603: decode is full and works: a healthy wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.ledger import join
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, span
from pdctl.facts.missing import known


@rule("PD603", "decode at capacity", Severity.INFO, ["engine.state"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Requests wait for pages or a place on a decode that makes progress for others.

    What it looks like: the prefill's inflight queue is old and what is behind it waits on decode, as in a
    stall, but decode's step and token counters move and its pages or slots are in use.

    What else it could be: a stall (PD602) has a decode that has places, or that makes no step. Pages that
    are free and not granted are PD607.

    What to do: add decode capacity (another decode, more pages, more slots) or fewer agents. Do not lower
    the inflight timeout: it would end requests that are merely waiting for their turn.
    """
    waiting = [e for e in join(facts) if e.verdict == "waiting" and e.holder]
    by_holder = Counter(e.holder for e in waiting)
    for view in facts.engines:
        state = view.state
        if not by_holder[view.name] or not known(state) or not view.working:
            continue
        oldest = max((e for e in waiting if e.holder == view.name), key=lambda e: e.stage_age)
        running = state.queues["running"].depth if "running" in state.queues else 0
        lines = [f"{running} running, {by_holder[view.name]} waiting, steps are made"]
        if known(state.pages):
            lines.append(f"pages: {state.pages.free} free of {state.pages.total}")
        said = (
            f"{view.name} is at capacity: {count(by_holder[view.name], 'request waits', 'requests wait')} "
            f"for a place, the oldest {span(oldest.stage_age)}; it makes progress."
        )
        yield rule.finding(view.name, said, lines, "", since=oldest.since)
