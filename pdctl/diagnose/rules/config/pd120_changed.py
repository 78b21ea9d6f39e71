"""PD120: settings are not those of the last good start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_LOGGING = re.compile(r"(?i)(?:^|_)(?:log|debug|verbose|trace)(?:_|$)|log_level|LOGLEVEL")
_TRIVIAL = ("HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID")


@rule(
    "PD120",
    "not started as when it was good",
    Severity.ERROR,
    [],
    echo_of=["PD313", "PD680"],
    role="amplifier",
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Flags or variables of a server are not those of its last good start.

    What it looks like: nothing by itself. When the server has failed since, what changed is the first
    suspect, above all variables of libraries and kernels (UCX_*, NCCL_*, splits, graphs) that no log
    mentions.

    What else it could be: a change that was meant. A fault that is older than the change has another cause.

    What to do: put the old value back and see whether the fault goes; then change one at a time.
    """
    for party in facts.parties:
        lines = changes(party)
        if not lines:
            continue
        first = listed(line.partition(":")[0] for line in lines[:3])
        ill = died(party) or party.traces.health not in ("", "ok")
        yield rule.finding(
            party.name,
            f"{party.name} was not started as when it was good: {lines[0]}"
            + (f" and {len(lines) - 1} more." if len(lines) > 1 else "."),
            lines,
            f"put back {first}, then: pdctl restart {party.name}",
            severity=Severity.ERROR if ill else Severity.INFO,
            since=party.traces.started_at,
            hypotheses=(
                Hypothesis(
                    "the change broke it", f"put back {lines[0].partition(':')[0]} and start it again"
                ),
                Hypothesis("it failed for another reason", "start it with the change and all else as before"),
            )
            if ill
            else (),
        )


def changes(party: Party) -> list[str]:
    """ "NAME: was A, is B" for each flag and variable that is not as in the last good start."""
    former = party.traces.former
    now = {**party.traces.settings, **party.traces.environ}
    variables, flags = bool(party.traces.environ), bool(party.traces.settings)
    found = []
    for name in dict.fromkeys([*former, *now]):
        shown = variables if name.isupper() else flags
        was_shown = any(n.isupper() == name.isupper() for n in former)
        old, new = former.get(name), now.get(name)
        if old != new and shown and was_shown and not _trivial(name):
            found.append(f"{name}: was {old or 'not set'}, is {new or 'not set'}")
    return found


def _trivial(name: str) -> bool:
    """What no server fails for."""
    return name in _TRIVIAL or bool(_LOGGING.search(name))
