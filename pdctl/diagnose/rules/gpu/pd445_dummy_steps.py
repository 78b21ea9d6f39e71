"""PD445: ranks step without work although they hold requests."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.progress import moves, stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule


@rule("PD445", "dummy steps instead of work", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Data parallel ranks run dummy batches to keep their collectives in step while requests never end.

    What it looks like: devices busy, health 200, `execute_dummy_batch` in stacks or logs over and over,
    "unfinished True, executed False", and a token counter that does not move.

    What else it could be: dummy batches on a rank without requests are normal while others work: tokens
    move. A GPU that spins at low power without stepping is PD442.

    What to do: restart decode; keep the stacks and which request ids were unfinished, because the scheduler
    has lost them.
    """
    for view in facts.engines:
        traces = view.traces
        lines = list(traces.of("watchdog.dummy_batch", "watchdog.nothing_executed"))
        framed = any("execute_dummy_batch" in f for s in traces.stacks for f in s.frames)
        nothing = any(traces.of("watchdog.nothing_executed"))
        found = stall(traces)
        if not (lines or framed) or moves(traces) or not (found or nothing):
            continue
        yield rule.finding(
            view.name,
            f"{view.name} steps dummy batches while its requests never end.",
            [*([found.told] if found else []), *quoted(lines)],
            f"pdctl restart --co {view.member.cell}",
            since=since(lines),
            hypotheses=[
                Hypothesis(
                    "the scheduler lost its requests: unfinished by count, in no queue",
                    "abort all requests of this engine and see whether dummy steps go on",
                ),
                Hypothesis(
                    "one rank does not come and the others step for it",
                    "py-spy dump of all ranks: who is not in the dummy batch?",
                ),
            ],
        )
