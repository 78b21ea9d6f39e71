"""PD219: a flag that this version does not know."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died, past
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD219", "unknown flag", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server ended at once because its command line has a flag or value that this version does not take.

    What it looks like: a usage text, "unrecognized arguments" or "invalid choice", exit code 2.

    What else it could be: nothing; flags come and go between versions.

    What to do: see `--help` of the version that runs there, or go back to the version that the flags are
    for.
    """
    for party in facts.parties:
        lines = [e for e in party.traces.of("process.bad_flag") if not past(party, e)]
        if not lines or not died(party):
            continue
        version = f" {party.traces.version}" if party.traces.version else ""
        yield rule.finding(
            party.name,
            f"{party.name}{version} does not take {lines[-1].values.get('what', 'a flag')}.",
            quoted(lines),
            "correct the flag in the fleet file, then: pdctl deploy",
            since=since(lines),
        )
