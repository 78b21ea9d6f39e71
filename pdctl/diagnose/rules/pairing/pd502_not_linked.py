"""PD502: an edge without a link."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts, peer_of
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import span
from pdctl.facts.missing import known

_GRACE = 30.0  # from the start of the younger side


def _gone(view: EngineView, other: EngineView) -> str | None:
    """Why `view` has no link to `other`; None when it has, or when it does not answer."""
    if not view.fresh or not view.shows_peers:
        return None
    peer = peer_of(view, other)
    if peer is None:
        return f"{view.name} has no entry for {other.name}"
    if peer.linked:
        return None
    # A link that was never there is young for ever: each try begins it anew.
    known_for = peer.since_age if peer.since_age is not None and peer.since_age >= 1.0 else None
    since = f" since {span(known_for)}" if known_for is not None else ""
    error = f": {peer.error}" if peer.error else ""
    return f"{view.name} is not linked to {other.name}{since}{error}"


@rule(
    "PD502",
    "edge not linked",
    Severity.ERROR,
    ["engine.state"],
    echo_of=["PD201", "PD202", "PD203", "PD301", "PD302", "PD206", "PD106", "PD501", "PD204"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A prefill and a decode of one cell have no control link.

    What it looks like: one or both are not ready and say "link" among the reasons; the router sends
    nothing over the edge, or its requests fail with link_failed.

    What else it could be: if one side is down (PD201), frozen (PD202) or was just started, the missing
    link is an effect. If both live and the error names a field, it is PD106. If the connect is refused,
    the prefill's bootstrap port or the advertised address is wrong; if it times out, a firewall.

    What to do: read the peer's error in the evidence; check the bootstrap port and address with
    `pdctl logs` of the decode, which dials. Where both are well, `pdctl relink PREFILL DECODE` drops what
    they hold of each other and links them anew; if that does not help, restart the pair.
    """
    for prefill, decode in facts.edges():
        lines = [line for line in (_gone(decode, prefill), _gone(prefill, decode)) if line]
        if not lines:
            continue
        states = [v.state for v in (prefill, decode)]
        starts = [s.started_at for s in states if known(s) and known(s.started_at)]
        leaving = any(known(s) and s.status in ("starting", "stopping") for s in states)
        young = leaving or (bool(starts) and facts.at - max(starts) < _GRACE)
        run = facts.run if known(facts.run) else ""
        restarts = bool(run) and not all(v.fresh for v in (prefill, decode))
        why = " yet: one of them has just started or is stopping" if young else ""
        why = why or (": a run of pdctl is at work on one of them" if restarts else "")
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{prefill.name} and {decode.name} are not linked{why}.",
            [*lines, f"the fleet's lock: {run}"] if restarts else lines,
            "" if why else f"pdctl logs {decode.name}",
            touches=[prefill.name, decode.name],
            severity=Severity.INFO if why else None,
        )
