"""PD215: a library or module that an engine needs is missing or of another version."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died, fatal, past
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


def _same(line: Event, cause: Event) -> bool:
    """The exception that ended it, of this life or in the same words of one before."""
    what = line.values.get("what", "")
    return line.where == cause.where or (bool(what) and what in cause.line)


@rule("PD215", "library missing", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server ended because a shared library, a symbol or a Python module could not be had.

    What it looks like: "cannot open shared object file", "undefined symbol", "No module named" at its
    start.

    What else it could be: an optional backend that is missing is logged too, and the engine goes on; only
    an end counts. A symbol that is undefined is two builds that do not belong together, not a missing
    package.

    What to do: install the package into the environment that the engine runs in, in the version that its
    build names, and compare `pip freeze` with a host that works.
    """
    for party in facts.parties:
        lines = [e for e in party.traces.of("process.no_library") if not past(party, e)]
        cause = fatal(party.traces)
        if not lines or not died(party) or (cause and not any(_same(e, cause) for e in lines)):
            continue  # an optional backend, and it ended of something else
        what = lines[-1].values.get("what", "a library")
        yield rule.finding(
            party.name,
            f"{party.name} ended because {what} cannot be had in its environment.",
            quoted(lines),
            f"install what provides {what}; compare pip freeze with a host that works",
            since=since(lines),
        )
