"""PD204: a unit began a new life a moment ago, and pdctl did not ask for it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts, Member, peer_of
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed, span
from pdctl.facts.missing import known
from pdctl.facts.unit import Unit

_RECENT = 300.0
_MANY = 3
# Who else begins a life, beside pdctl and a supervisor after an end.
_OTHERS = {"hand": "was started by hand", "boot": "was started by the boot of its host"}


@rule("PD204", "engine came back in a new life", Severity.WARNING, ["units"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A unit began a new life within the last minutes, and it was not `pdctl` that asked for it.

    What it looks like: everything is Ready again, requests that were on it have failed, and on engines
    that keep stale peer state nothing works from then on (PD501). Either it ended and its supervisor
    brought it back, or a person used systemctl on the host, or the host booted. Nothing on the hosts
    restarts its peers with it, because they are other machines' units; the bundled engines link again.

    What else it could be: a restart by `pdctl` is asked for and not reported. Three ends in a short time
    are a crash loop (PD203).

    What to do: find out why it ended with `pdctl logs NAME`; SIGKILL without a person behind it is nearly
    always memory. If its peers did not link again, restart the cell together: `pdctl restart --co CELL`.
    """
    for member in facts.members():
        unit = member.unit
        if not known(unit) or not unit.wanted:
            continue
        began = (unit.since if unit.state == "backoff" else unit.started_at or unit.since) or facts.at
        if unit.state == "backoff" or (unit.restarts and facts.at - began < _RECENT):
            if unit.restarts < _MANY:
                yield _unasked(rule, facts, member, unit, began)
        elif unit.started_by in _OTHERS and unit.started_at and facts.at - unit.started_at < _RECENT:
            yield _by_others(rule, facts, member, unit, unit.started_at)


def _unasked(rule: Rule, facts: Facts, member: Member, unit: Unit, began: float) -> Finding:
    waits = unit.state == "backoff"
    age = span(facts.at - began)
    back = "will be started again in a moment" if waits else f"was started again {age} ago"
    view = facts.engine(member.name)
    ready = view is not None and known(view.state) and view.state.ready and not waits
    said = f"{member.name} ended unasked and {back}{' and is ready' if ready else ''}: {unit.last_end()}."
    evidence = [f"last end: {unit.last_end()}", f"restarts that nobody asked for: {unit.restarts}"]
    remedy = f"pdctl logs {member.name}"
    if not waits and _may_stay_stale(facts, member):
        evidence.append("engines of its kind do not say whether its peers dropped its old life")
        remedy = f"pdctl restart --co {member.cell}"
    return rule.finding(member.name, said, evidence, remedy, since=began)


def _may_stay_stale(facts: Facts, member: Member) -> bool:
    """Whether it has peers that do not show whom they are linked to, as engines of other kinds."""
    view = facts.engine(member.name)
    return view is not None and any(not peer.shows_peers for peer in _peers(facts, view) if known(peer.state))


def _by_others(rule: Rule, facts: Facts, member: Member, unit: Unit, began: float) -> Finding:
    how, age = _OTHERS[unit.started_by], span(facts.at - began)
    view = facts.engine(member.name)
    peers = list(_peers(facts, view)) if view is not None else []
    alone = [p for p in peers if _older(p, began)]
    evidence = [f"its process, pid {unit.pid}, is {age} old; pdctl did not start it"]
    evidence += [line for p in alone if view is not None for line in _link(facts, p, view)]
    without = f", without {listed(p.name for p in alone)}" if alone else ""
    broken = any(not _linked(p, view) for p in alone if view is not None)
    remedy = f"pdctl restart --co {member.cell}" if broken else f"pdctl logs {member.name}"
    said = f"{member.name} {how} {age} ago{without}."
    return rule.finding(member.name, said, evidence, remedy, since=began)


def _peers(facts: Facts, view: EngineView) -> Iterator[EngineView]:
    for prefill, decode in facts.edges():
        if view.name in (prefill.name, decode.name):
            yield decode if view.name == prefill.name else prefill


def _older(view: EngineView, began: float) -> bool:
    """Whether its present life is of before `began`."""
    unit = view.member.unit
    return known(unit) and unit.started_at is not None and unit.started_at < began - 1.0


def _linked(survivor: EngineView, view: EngineView) -> bool:
    """Whether the survivor's link is to the present life."""
    peer, state = peer_of(survivor, view), view.state
    return peer is not None and peer.linked and known(state) and peer.incarnation == state.incarnation


def _link(facts: Facts, survivor: EngineView, view: EngineView) -> Iterator[str]:
    unit = survivor.member.unit
    if known(unit) and unit.started_at is not None:
        yield f"{survivor.name} runs for {span(facts.at - unit.started_at)} and was not restarted with it"
    peer = peer_of(survivor, view)
    if _linked(survivor, view) and peer is not None:
        yield f"{survivor.name} linked to its new life {span(peer.since_age)} ago"
    elif survivor.shows_peers:
        yield f"{survivor.name} is not linked to its new life"
