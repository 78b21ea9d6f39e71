"""PD512: which engine or pair fails, from the matrix of prefills and decodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from pdctl.diagnose.endpoints import one_nic
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Tally
from pdctl.diagnose.rooms import Failure, Kind, failures
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_ID = 6  # a shorter word is no engine's id


def _bad(tally: Tally) -> bool:
    """Nearly all of its transfers fail."""
    return tally.failed > 0 and tally.failed >= 4 * tally.ok


def _lines(tallies: Iterable[Tally]) -> list[str]:
    return [f"{t.prefill} -> {t.decode}: {t.ok} worked, {t.failed} failed" for t in tallies]


def _matrix(rule: Rule, facts: Facts) -> Iterator[Finding]:
    bad = [t for t in facts.tallies if _bad(t)]
    good = [t for t in facts.tallies if t.ok and not _bad(t)]
    prefills, decodes = {t.prefill for t in facts.tallies}, {t.decode for t in facts.tallies}
    if not bad or not good:
        return
    rows = {t.prefill for t in bad} - {t.prefill for t in good}
    columns = {t.decode for t in bad} - {t.decode for t in good}
    lines = _lines([*bad, *good])
    if len(bad) == 1 and bad[0].prefill not in rows and bad[0].decode not in columns:
        yield _cell(rule, facts, bad[0], lines)
    elif len(bad) == 1 and len(prefills) == 1 and bad[0].decode in columns:
        yield from (_sick(rule, facts, bad[0].decode, "every transfer to it", lines),)
    else:
        sick = [n for n in rows if len(decodes) > 1] or [n for n in columns if len(prefills) > 1]
        side = "from" if sick and sick[0] in rows else "to"
        for name in sick if len(sick) == 1 else ():
            yield _sick(rule, facts, name, f"every transfer {side} it", lines)


def _cell(rule: Rule, facts: Facts, bad: Tally, lines: list[str]) -> Finding:
    found = [f for f in failures(facts, bad.prefill, bad.decode) if f.kind is Kind.LOST_PEER]
    view = facts.engine(bad.prefill)
    return rule.finding(
        f"{bad.prefill} -> {bad.decode}",
        f"Only the pair {bad.prefill} -> {bad.decode} fails, both work with others: {bad.prefill} keeps a "
        f"poisoned peer entry for {bad.decode}.",
        [*lines, *quoted([f.event for f in found])],
        f"pdctl restart --co {view.member.cell}" if view else f"restart {bad.prefill}",
        touches=[bad.prefill, bad.decode],
        since=since([f.event for f in found]),
    )


def _sick(rule: Rule, facts: Facts, name: str, what: str, lines: list[str]) -> Finding:
    view = facts.engine(name)
    failed = list(view.traces.of("verbs.completion", "verbs.rtr_failed")) if view else []
    nic = one_nic(failed)
    return rule.finding(
        name,
        f"{what.capitalize()} fails and the other engines work with one another: {name} is the sick one"
        + (f", and all its errors are of its NIC {nic}." if nic else "."),
        [*lines, *quoted(failed if nic else [])],
        f"take {nic} out of {name} (or its host out of the fleet) and test it: ib_write_bw -d {nic}"
        if nic
        else f"pdctl logs {name}",
        touches=[name],
    )


def _named(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Several engines' logs name one and the same peer."""
    by: dict[str, list[Failure]] = defaultdict(list)
    for found in failures(facts):
        if found.kind in (Kind.LOST_PEER, Kind.OWN) and len(found.remote) >= _ID:
            by[found.remote].append(found)
    writers = {remote: {f.party for f in found} for remote, found in by.items()}
    total = Counter({remote: len(found) for remote, found in by.items()})
    for remote, names in writers.items():
        if len(names) < 2 or total[remote] < 0.8 * sum(total.values()):
            continue
        roles = {p.role for n in names if (p := facts.party(n))}
        side = {"decode": "prefill", "prefill": "decode"}.get(next(iter(roles), ""), "peer")
        sick = _party(facts, remote) or _only(facts, side)
        whose = sick or f"the {side} with id {remote}"
        events = [f.event for f in by[remote]]
        yield rule.finding(
            sick or remote,
            f"{listed(sorted(names))} all fail with one and the same peer: {whose} is the sick one, "
            "not they.",
            [f"{total[remote]} of {sum(total.values())} failures name {remote}", *quoted(events)],
            f"pdctl logs {sick}" if sick else f"find and restart the {side} whose engine id is {remote}",
            touches=[*names, *([sick] if sick else [])],
            since=since(events),
        )


def _party(facts: Facts, remote: str) -> str:
    """The engine whose address or engine id `remote` is; "" when nobody knows."""
    for view in facts.engines:
        known = {view.name, view.member.url.removeprefix("http://"), view.traces.settings.get("engine_id")}
        known.add(view.traces.settings.get("kv_transfer_config.engine_id"))
        if remote in known or any(k and remote.split(":")[0] == k.split(":")[0] for k in known):
            return view.name
    return ""


def _only(facts: Facts, side: str) -> str:
    """The one engine of a side, "" when there are several."""
    names = [e.name for e in facts.engines if e.role == side]
    return names[0] if len(names) == 1 else ""


@rule(
    "PD512",
    "one pair or one engine fails among many",
    Severity.ERROR,
    ["engine.reach"],
    echo_of=["PD222", "PD210", "PD211", "PD212", "PD213", "PD214", "PD203", "PD201", "PD202"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The matrix of prefills and decodes, or the peer that failures name, points at one pair or one engine.

    What it looks like: one bad cell means a poisoned pair: the first connect failed, the agent entry was
    dropped and the engine still treats the peer as known. A bad row is a sick prefill, a bad column a sick
    decode. Several decodes whose errors name the same remote engine id are not sick: that prefill is.

    What else it could be: everything bad is the router, the control plane or a mismatch. A restart of one
    side just before is PD510. KeyErrors after such failures only echo them.

    What to do: restart the poisoned pair or the sick engine, together with its peers on backends that keep
    stale state; read the sick engine's own log for the first error.
    """
    yield from _matrix(rule, facts)
    yield from _named(rule, facts)
