"""PD123: a unit's profile cannot be read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.needs import QUIET
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed
from pdctl.facts.missing import Missing


@rule("PD123", "profile cannot be read", Severity.WARNING, ["engine.reach"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """What a unit should be started with cannot be told: its profile or a secrets file has an error.

    What it looks like: engines run on with what they were started with, and nothing is wrong until the next
    `pdctl deploy`, which refuses. Until then nobody can tell whether they run as the files say (PD101), and
    a co-restart starts them with the env files of before.

    What else it could be: nothing; the file and line are told as `pdctl profile check` tells them.

    What to do: correct the line, then `pdctl profile check`.
    """
    wrong: defaultdict[str, list[str]] = defaultdict(list)
    for member in facts.members():
        if isinstance(member.expected, Missing) and member.expected.reason not in QUIET:
            wrong[member.expected.reason].append(member.name)
    for reason, names in wrong.items():
        yield rule.finding(
            ", ".join(names),
            f"What {listed(names)} should be started with cannot be told: {reason.rstrip('.')}.",
            ["whether the running environment is the profile's (PD101) was not judged"],
            "correct the line, then pdctl profile check",
            touches=names,
        )
