"""PD204: a unit began a new life a moment ago, and pdctl did not ask for it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts, Member, peer_of
from pdctl.diagnose.ledger import join
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed, span
from pdctl.facts.missing import known
from pdctl.facts.unit import Unit

_CALM = 120.0  # a life that has served for as long is no warning any more
_RECENT = 300.0  # PD203 counts these
_AGAIN = 1800.0  # ends that are closer together than this recur
_TOLD = 86400.0
_MANY = 3
_SAME = 10.0  # the marks of one start lie within
# Who else begins a life, beside pdctl and a supervisor after an end.
_OTHERS = {"hand": "was started by hand", "boot": "was started by the boot of its host"}


@rule("PD204", "engine came back in a new life", Severity.WARNING, ["units"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A unit began a new life, and it was not `pdctl` that asked for it: a warning for the first two minutes
    of that life, for as long as it is not ready or a request of before hangs, and for half an hour where it
    recurs; then a note for a day.

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
        age = facts.at - began
        if unit.state == "backoff" or (unit.restarts and age < _TOLD):
            loops = unit.restarts >= _MANY and (unit.state == "backoff" or age < _RECENT)
            if not loops:
                yield _unasked(rule, facts, member, unit, began)
        elif unit.started_by in _OTHERS and unit.started_at and age < _TOLD:
            yield _by_others(rule, facts, member, unit, unit.started_at)


def _unasked(rule: Rule, facts: Facts, member: Member, unit: Unit, began: float) -> Finding:
    waits = unit.state == "backoff"
    back = "will be started again in a moment" if waits else f"was started again {span(facts.at - began)} ago"
    ready = " and is ready" if _ready(facts, member) and not waits else ""
    often = f", the last of {unit.restarts} such ends" if unit.restarts > 1 else ""
    said = f"{member.name} ended unasked and {back}{ready}: {unit.last_end()}{often}."
    evidence = [f"last end: {unit.last_end()}", f"restarts that nobody asked for: {unit.restarts}"]
    remedy = f"pdctl logs {member.name}"
    recurs = _recurs(facts, member, unit, began)
    stale = not waits and _may_stay_stale(facts, member)
    if recurs:
        evidence.append(f"it recurs: {recurs}")
    if stale:
        evidence.append("engines of its kind do not say whether its peers dropped its old life")
        remedy = f"pdctl restart --co {member.cell}"
    loud = _loud(facts, member, began, _AGAIN if recurs else _RECENT if stale else _CALM)
    if ready and facts.at - began < _CALM and not (recurs or stale):
        evidence.append(
            f"a note, no warning, from {span(_CALM)} after its start on, where nothing of before hangs"
        )
    severity = Severity.WARNING if waits or loud else Severity.INFO
    return rule.finding(member.name, said, evidence, remedy, since=began, severity=severity)


def _ready(facts: Facts, member: Member) -> bool:
    view = facts.engine(member.name)
    return view is not None and known(view.state) and view.state.ready


def _loud(facts: Facts, member: Member, began: float, calm: float) -> bool:
    """Whether the new life is younger than `calm` seconds, on its way, or something of before it hangs."""
    age = facts.at - began
    if age < calm or (age < _RECENT and facts.engine(member.name) and not _ready(facts, member)):
        return True
    old = (e for e in join(facts) if e.verdict != "moving" and facts.at - e.age < began)
    return any(member.role == "router" or member.name in (e.prefill, e.decode) for e in old)


def _recurs(facts: Facts, member: Member, unit: Unit, began: float) -> str:
    """How close together its last two lives began, as words; "" for one that ended once, or long before."""
    party = facts.party(member.name)
    if unit.restarts < 2 or party is None:
        return ""
    starts = [e.at for e in party.traces.of("life.begun", "life.start") if e.at is not None]
    before = max((at for at in starts if at < began - _SAME), default=None)
    if before is None or began - before > _AGAIN:
        return ""
    return f"the life before it began {span(began - before)} earlier"


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
    loud = _loud(facts, member, began, _RECENT if broken else _CALM)
    severity = Severity.WARNING if loud else Severity.INFO
    return rule.finding(member.name, said, evidence, remedy, since=began, severity=severity)


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
