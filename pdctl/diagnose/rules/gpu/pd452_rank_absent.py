"""PD452: ranks of a group did not all come to its start."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


def _still_loading(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Ranks that loaded their weights and waited in vain for the others."""
    lines = facts.events("collective.still_loading")
    if not lines:
        return
    names = writers(lines)
    yield rule.finding(
        listed(names),
        f"Ranks of {listed(names)} loaded their weights and others did not in the same time.",
        quoted(lines),
        "see the log and the host memory of the ranks that did not end loading",
        touches=names,
        since=since(lines),
        hypotheses=[
            Hypothesis(
                "another rank ended, as for want of host memory", "dmesg -T | grep -i 'killed process'"
            ),
            Hypothesis(
                "a node reads the weights more slowly than the barrier waits",
                "time a read of one shard on each node; raise the timeout (--dist-timeout) once",
            ),
        ],
    )


@rule(
    "PD452",
    "ranks missing at the start",
    Severity.ERROR,
    ["logs"],
    echo_of=["PD210", "PD215", "PD219", "PD222"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A process group was not complete in its time: fewer ranks joined than it has.

    What it looks like: "Timed out … waiting for clients. 3/4 clients joined" from every rank that came.

    What else it could be: the missing rank may have ended with an exception of its own: that one leads.

    What to do: find which rank or host did not write anything, and why: not started, ended, or not able to
    reach the address of the first rank.
    """
    yield from _still_loading(rule, facts)
    lines = facts.events("collective.absent")
    if not lines:
        return
    names, values = writers(lines), lines[-1].values
    yield rule.finding(
        listed(names),
        f"{values['have']} of {values['want']} ranks of {listed(names)} came to its start.",
        quoted(lines),
        "start all ranks together; see the log of the one that did not join",
        touches=names,
        since=since(lines),
        hypotheses=[
            Hypothesis(
                "a rank ended or was never started", "processes and logs on every host against the world size"
            ),
            Hypothesis(
                "a host cannot reach the first rank", "nc -zv MASTER_ADDR MASTER_PORT from every host"
            ),
        ],
    )
