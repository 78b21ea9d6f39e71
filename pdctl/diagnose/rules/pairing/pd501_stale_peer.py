"""PD501: one side of an edge was restarted and the other still talks to its old life."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.picture import Engine, Peer
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import span
from pdctl.facts.missing import known

_RELINK = 6.0  # a healing survivor fences and links well within this


def _entries(view: EngineView, other: EngineView) -> list[Peer]:
    addresses = {other.member.bootstrap, other.member.url.removeprefix("http://")}
    return [p for p in view.peers if p.instance == other.name or p.address in addresses]


def _signs(view: EngineView, other: EngineView, state: Engine) -> list[str]:
    """Why `view` sees an old life of `other`; empty when it has a live link to the present one."""
    entries = _entries(view, other)
    if any(p.linked and not p.stale and p.incarnation == state.incarnation for p in entries):
        return []
    lines = []
    for p in entries:
        if p.stale:
            lines.append(f"{view.name} marks its state of {other.name} as stale")
        if p.incarnation and known(state.incarnation) and p.incarnation != state.incarnation:
            held, own = p.incarnation, state.incarnation
            lines.append(f"{view.name} holds incarnation {held} of {other.name}, which is now {own}")
    return lines


def _history(prefill: EngineView, decode: EngineView, now: float) -> list[str]:
    """Which side is younger, and the last transfer that worked before that."""
    p, d = prefill.state, decode.state
    if not known(p) or not known(d) or not known(p.started_at) or not known(d.started_at):
        return []
    young, old = (decode, prefill) if d.started_at > p.started_at else (prefill, decode)
    started = max(p.started_at, d.started_at)
    lines = [f"{young.name} started {span(now - started)} ago, {old.name} was not restarted with it"]
    transfers = [e.last_transfer_age for e in _entries(old, young) if e.last_transfer_age is not None]
    if transfers:
        lines.append(f"last transfer of {old.name} with it: {span(min(transfers))} ago")
    return lines


@rule("PD501", "stale peer after a one-sided restart", Severity.ERROR, ["engine.state"], echo_of=["PD106"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """One engine of a pair was restarted alone; the other keeps transfer state of the life before.

    What it looks like: every pod is Ready, and every request over this edge fails or hangs from the moment
    of the restart. The incarnation that one side holds of the other is not the one it has now.

    What else it could be: an edge that never worked since both were started is configuration or network
    (PD106, PD502). A gradual decline without a restart is a leak. The bundled engine heals this by itself
    within seconds unless it runs in legacy-bootstrap mode.

    What to do: restart the pair together: `pdctl restart --co CELL`. Restarting the router or the
    restarted side again does not help; the old state sits in the survivor.
    """
    for prefill, decode in facts.edges():
        p, d = prefill.state, decode.state
        if not known(p) or not known(d):
            continue
        started = max([s for s in (p.started_at, d.started_at) if known(s)], default=0.0)
        if facts.at - started < _RELINK:
            continue
        signs = _signs(prefill, decode, d) + _signs(decode, prefill, p)
        if not signs:
            continue
        modes = [f"{e.instance} runs in legacy-bootstrap mode" for e in (p, d) if e.legacy_bootstrap]
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{prefill.name} and {decode.name} do not know each other's present life: "
            "one was restarted without the other.",
            [*dict.fromkeys(signs), *_history(prefill, decode, facts.at), *modes],
            f"pdctl restart --co {prefill.member.cell}",
            touches=[prefill.name, decode.name],
            since=started or None,
        )
