"""PD644: an engine runs nothing, requests wait in it, and none is taken up."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.progress import moves, stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import foreign
from pdctl.diagnose.words import count, span


def _kv(prefills: list[str]) -> Hypothesis:
    peer = prefills[0] if prefills else "the prefill"
    return Hypothesis(
        "they wait for KV that never comes",
        f"grep the id of the oldest in the log of {peer}: computed, sent, expired or unknown there?",
    )


def _doubts(facts: Facts, view: EngineView) -> list[Hypothesis]:
    prefills = [e.name for e in facts.engines if e.role == "prefill"]
    handshake = Hypothesis(
        "decode does not come for them", "count the requests that decode has: do they wait there, or nowhere?"
    )
    head = Hypothesis(
        "its scheduler admits none: the first in line asks for more than a limit gives it",
        "abort the oldest request and see whether the others move",
    )
    if view.role == "decode":
        return [_kv(prefills), head]
    return [handshake, head] if view.role == "prefill" else [head]


@rule("PD644", "requests wait and nothing runs", Severity.ERROR, ["readings"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine computes nothing for a minute and more although requests wait in it.

    What it looks like: running 0, waiting 1 or more, no prompt and no token, health 200. Clients hang without
    an error. On a decode the waiting ones mostly wait for KV, for which many builds have no deadline.

    What else it could be: with requests running it is PD443. A decode waits rightly while its prefill
    computes; so it is not named while a prefill works. Waiting ones that come and go are load.

    What to do: find out what the oldest of them waits for, by its id in both logs; then restart the cell,
    `pdctl restart --co CELL`.
    """
    for view in facts.engines:
        found = stall(view.traces)
        if found is None or found.running or not found.waiting or not foreign(view):
            continue
        prefills = [e for e in facts.engines if e.role == "prefill"]
        if view.role == "decode" and any(moves(e.traces, at=facts.at) for e in prefills):
            continue
        healthy = ["health answers ok all the while"] if view.traces.health == "ok" else []
        yield rule.finding(
            view.name,
            f"{view.name} has run nothing for {span(found.seconds)}, with "
            f"{count(int(found.waiting), 'request')} waiting in it.",
            [found.told, *healthy],
            f"pdctl restart --co {view.member.cell}",
            touches=[view.name, *(e.name for e in prefills)],
            since=found.since,
            hypotheses=_doubts(facts, view),
        )
