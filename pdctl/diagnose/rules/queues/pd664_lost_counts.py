"""PD664: the router counts fewer requests than its engines hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.diagnose.counts import books
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_LEAST = 3.0
_SHARE = 0.2
_TESTS = (
    Hypothesis("the router loses counts of live requests", "its count against one engine's, every 10 s"),
    Hypothesis("clients reach the engines past the router", "source addresses in the engines' access logs"),
)


def _falls(values: Sequence[float], held: Sequence[float]) -> bool:
    """Down over at least three readings while the engines hold as much as before."""
    return len(values) > 2 and list(values) == sorted(values, reverse=True) and values[-1] < values[0]


@rule("PD664", "lost accounting", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A router's count of active requests is negative, or well below what its engines hold.

    What it looks like: hot spots and an admission gate that lets everything in. A count below zero follows
    an endpoint that went NotReady and came back: its counter began anew under the same name. A count that
    falls back to zero with every health cycle is reset by the health check; one that decays steadily
    without completions is expired by a staleness limit while the requests run.

    What else it could be: more than the engines hold is leaked counts (PD663). Requests that reach an
    engine past the router are in no count of it.

    What to do: upgrade the router; until then raise its staleness limit above the longest request, and
    restart it after an endpoint flapped.
    """
    begun_anew = _negative(rule, facts)
    if begun_anew is not None:
        yield begun_anew
        return
    found = books(facts)
    if found is None or found.engines - found.router < max(_LEAST, _SHARE * found.engines):
        return
    router = facts.party(found.name)
    resets = list(router.traces.of("router.load_reset")) if router else []
    reaped = list(router.traces.of("router.reaped")) if router else []
    flaps = list(router.traces.of("router.flap")) if router else []
    unsure = False
    if resets or (0.0 in found.before and max(found.before) > 0):
        why = "its health check sets the counts to zero"
    elif reaped or _falls(found.before, found.engines_before):
        why = "a staleness limit takes off requests that still run"
    elif flaps:
        why = "an endpoint that came back began at zero"
    elif len(found.engines_before) > 1 and found.router < 0.5 * found.engines:
        why, unsure = "it does not count what runs there", True
    else:
        return
    yield rule.finding(
        found.name,
        f"{found.name} counts {found.router:g} requests and the engines hold {found.engines:g}: {why}.",
        [
            found.told,
            f"its count over time: {', '.join(f'{v:g}' for v in found.before)}",
            *quoted([*resets, *reaped]),
        ],
        "raise the router's staleness limit above the longest request, or upgrade it",
        touches=[found.name],
        severity=Severity.WARNING if unsure else None,
        hypotheses=_TESTS if unsure else [],
    )


def _negative(rule: Rule, facts: Facts) -> Finding | None:
    """A count below zero: it began anew while requests ran, and they were taken off all the same."""
    for party in facts.parties:
        values = [v for _, v in party.traces.numbers("router_active")]
        flaps = list(party.traces.of("router.flap", "router.negative"))
        if (values and min(values) < 0) or any(party.traces.of("router.negative")):
            return rule.finding(
                party.name,
                f"{party.name} counts {min(values, default=-1):g} requests: it began anew while they ran.",
                quoted(flaps) or ["its count is below zero"],
                f"pdctl restart {party.name}; upgrade it",
                since=since(flaps),
            )
    return None
