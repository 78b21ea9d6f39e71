"""PD211: ended by SIGKILL, and nothing says by whom."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import end_in_words, kernel_killed, past, signal_of
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.facts.missing import known


@rule(
    "PD211",
    "killed, by nobody known",
    Severity.ERROR,
    ["engine.reach"],
    echo_of=["PD446", "PD214", "PD212"],
    fallback=True,
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process ended by SIGKILL (exit 137 or -9) and no kernel line says that memory was the reason.

    What it looks like: the log stops in the middle of normal work.

    What else it could be: with a kernel line it is PD210. A watchdog or a probe that ends an engine says so
    in its own log first. A parent that dies takes its children with it: the oldest end counts.

    What to do: ask the kernel log of that time, then the supervisor or orchestrator; a stop that took
    longer than its grace period also ends with SIGKILL.
    """
    back = {m.name for m in facts.members() if known(m.unit) and m.unit.state == "backoff"}
    for party in facts.parties:
        # One that will be started again in a moment is PD204's, or PD203's.
        if signal_of(party.traces) != 9 or kernel_killed(facts, party) or party.name in back:
            continue
        # The life that runs now was not killed: why it began is PD204's.
        if party.traces.ended is None and all(past(party, e) for e in party.traces.of("process.unit_ended")):
            continue
        name = party.name
        yield rule.finding(
            name,
            f"{name} was killed and nothing says by whom.",
            [
                f"{name}: {end_in_words(party.traces)}",
                "no OOM line of that time in what is shown of its host's kernel log",
            ],
            f"pdctl logs {name}",
            hypotheses=[
                Hypothesis(
                    "the kernel killed it for want of memory",
                    "dmesg -T | grep -i 'killed process' on its host",
                ),
                Hypothesis(
                    "a supervisor, probe or person killed it",
                    "journalctl -u UNIT, or kubectl describe pod, at that minute",
                ),
            ],
        )
