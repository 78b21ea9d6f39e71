"""PD663: the router counts requests that no engine holds."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.counts import books
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_LEAST = 3.0
_FACTOR = 3.0
_TESTS = (
    Hypothesis("counts of clients that went away stay", "stop traffic: does the count reach zero?"),
    Hypothesis("requests wait in the router itself", "its queue metrics, and the age of its oldest request"),
)


@rule("PD663", "phantom load", Severity.WARNING, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A router's count of active requests is above what its engines hold, and does not come down.

    What it looks like: the count stands above zero without traffic, one worker gets everything (a restarted
    one begins at zero), clients that went away were never taken off.

    What else it could be: requests between router and engine for a moment; requests that an engine holds
    and does not show in its gauges, which freeze in some wedges: look at the engine's tokens. Where the
    router names its requests, PD601 names the forgotten ones. Less than the engines hold is PD664.

    What to do: restart the router (counts begin at zero) and upgrade to a version that takes off requests
    whose client went away.
    """
    found = books(facts)
    if found is None or len(found.before) < 2 or min(found.before[-2:]) < _LEAST:
        return
    standing = min(found.before[-2:]) == max(found.before[-2:])
    # A router counts a request of a pair once on each side, and what waits in the router itself.
    if not found.quiet and not (standing and found.router > _FACTOR * max(found.engines, _LEAST)):
        return
    yield rule.finding(
        found.name,
        f"{found.name} counts {found.router:g} active requests and the engines hold {found.engines:g}: "
        f"{found.router - found.engines:g} leaked.",
        [found.told, f"its count over time: {', '.join(f'{v:g}' for v in found.before)}"],
        f"pdctl restart {found.name}",
        touches=[found.name],
        hypotheses=[] if found.quiet else _TESTS,
    )
