"""PD901: a suppression that does nothing any more."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD901", "a suppression has expired", Severity.INFO, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A [[suppress]] of the fleet file is past its date, so what it hid counts again.

    What it looks like: a finding that was quiet for weeks is back among the findings.

    What else it could be: nothing; the date is the fleet file's.

    What to do: mend what it hid and delete the entry, or give it a new date and a reason that still holds.
    """
    for each in facts.suppressions:
        if each.until <= facts.at:
            yield rule.finding(
                "fleet file",
                f"The suppression of {each.code} on {each.subject} expired with the end of {each.last_day}.",
                [f"its reason was: {each.reason}"],
                "delete it from the fleet file, or give it a new date",
                touches=[],
            )
