"""PD444: some data parallel ranks make no token while others do."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.progress import moves, stalls
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD444", "a rank without progress", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Ranks of one engine hold running requests without a token, and others go on.

    What it looks like: the sum over ranks looks alive; per rank, running stays above zero with a flat
    counter. Health is 200 and a router piles the work on the ranks that are left.

    What else it could be: all ranks at once is PD443 or a collective. A rank with nothing running is idle.

    What to do: route around the rank, take its stacks, and restart the engine; watch ranks, not sums.
    """
    for view in facts.engines:
        stuck = [s for s in stalls(view.traces) if s.running and "DP" in s.rank]
        alive = [r for r in view.traces.ranks if "DP" in r and moves(view.traces, r)]
        if not stuck or not alive:
            continue
        names = [s.rank for s in stuck]
        yield rule.finding(
            view.name,
            f"{listed(names)} of {view.name} make no token while {listed(alive)} go on.",
            [s.told for s in stuck],
            f"pdctl restart --co {view.member.cell}",
            since=min((s.since for s in stuck if s.since is not None), default=None),
            hypotheses=[
                Hypothesis(
                    "its scheduler lost a request and steps without it",
                    f"stop new work to {names[0]} and see whether its running count falls",
                ),
                Hypothesis("its step is stuck", f"py-spy dump of the process of {names[0]}, twice"),
            ],
        )
