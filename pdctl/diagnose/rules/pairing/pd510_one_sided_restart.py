"""PD510: one side of a pair was restarted alone, and the pair has not worked since."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quote, quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import at_work, stands
from pdctl.diagnose.rooms import Failure, Kind, failures
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import foreign, last_good, young_and_old
from pdctl.diagnose.words import span

_OVER = 120.0  # seconds after the last failure; what ran then was handed over later
_QUIET = 60.0  # without a transfer for so long after the start


def _trouble(facts: Facts, young: EngineView, old: EngineView, at: float) -> list[Failure]:
    """Failures of the pair since `at`, those that name the loss of a peer first."""
    found = [
        f
        for f in failures(facts, young.name, old.name)
        if (f.began is None or f.began >= at - 5) and f.kind not in (Kind.ECHO, Kind.ABORT)
    ]
    return sorted(found, key=lambda f: f.kind is not Kind.LOST_PEER)


def _backend(view: EngineView) -> str:
    text = view.traces.settings.get("transfer_backend", "") + view.traces.settings.get(
        "kv_transfer_config.kv_connector", ""
    )
    return text.lower()


def _history(facts: Facts, young: EngineView, old: EngineView, at: float) -> list[str]:
    lines = [f"{young.name} started {span(facts.at - at)} ago, {old.name} was not restarted with it"]
    good = last_good(young, old)
    if good is not None:
        order = "before that start" if good < at else "after that start"
        lines.append(f"last transfer that worked: {span(facts.at - good)} ago, {order}")
    again = [quote(e) for v in (old, young) for e in v.traces.of("sglang.peer_again")][:1]
    health = [f"{v.name} answers its health check" for v in (young, old) if v.traces.health == "ok"]
    if "nixl" in _backend(young) + _backend(old):
        lines.append("NIXL backends keep no watch on a peer's life; a stale endpoint is kept until a restart")
    return [*lines, *again, *health]


def _healed(young: EngineView, old: EngineView, trouble: list[Failure]) -> bool:
    """Decode makes tokens long after the last failure: what it runs came over this pair, the only one."""
    last = max((f.at for f in trouble if f.at is not None), default=None)
    decode = young if young.role == "decode" else old
    return last is not None and any(
        r.at is not None and r.at > last + _OVER and r.numbers.get("generation_tps", 0.0) > 0
        for r in decode.traces.readings
    )


def _cured(facts: Facts, cell: str) -> list[str]:
    names = {e.name for e in facts.engines if e.member.cell == cell}
    changes = [c for c in facts.changes if c.cured and (c.party in names or c.party in ("", cell))]
    return ["restarting both sides together cured it" for c in changes if c.what == "co-restarted"][:1]


def _judge(
    rule: Rule, facts: Facts, young: EngineView, old: EngineView, at: float
) -> tuple[list[str], list[Failure], bool] | None:
    """(evidence, failures, certain), None when the pair works or nothing points at the restart."""
    good = last_good(young, old)
    trouble = _trouble(facts, young, old, at)
    if good is not None and good > at:
        trouble = [f for f in trouble if f.kind is Kind.LOST_PEER and (f.at or 0) >= good]
        if not trouble:
            return None
    alone = sum(1 for edge in facts.edges() if young in edge or old in edge) == 1
    if alone and _healed(young, old, trouble):
        return None
    cured = _cured(facts, young.member.cell)
    tallied = [t for t in facts.tallies if {t.prefill, t.decode} == {young.name, old.name}]
    if any(t.ok and young.name in (t.prefill, t.decode) and t not in tallied for t in facts.tallies):
        return None  # its new life works with others: PD512
    dead = any(t.failed and not t.ok for t in tallied)
    quiet = good is not None and facts.at - max(good, at) > _QUIET
    stuck = any(stands(v.traces, "queue_inflight") > _QUIET and not at_work(v.traces) for v in (young, old))
    broken = bool(trouble) or dead or bool(cured) or quiet or stuck
    if not broken:
        return None
    certain = bool(cured) or any(f.kind is Kind.LOST_PEER for f in trouble) or good is not None
    matrix = [f"{t.prefill} -> {t.decode}: {t.ok} worked, {t.failed} failed" for t in tallied]
    return [*_history(facts, young, old, at), *cured, *matrix], trouble, certain


@rule("PD510", "one side restarted alone, the pair is stale", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine came back in a new life and its peer still holds endpoints, agents or addresses of the old.

    What it looks like: both sides are Ready and answer health; since the start of one of them requests over
    this pair fail with a lost peer, run into their timer, or hang. A first small transfer may pass. Which
    side survives it depends on version, backend and direction; NIXL backends keep no heartbeat.

    What else it could be: a pair that never worked since both started is network or configuration. A
    restart while the pair was idle, with transfers since, is not the cause. Months without a restart and
    a slow decline are a leak. An engine that crashed as its peer came back is PD511.

    What to do: restart the pair together, `pdctl restart --co CELL`, then prove every edge with a small and
    a large transfer. Restarting the young side again does not help: the stale state is in the survivor.
    """
    for prefill, decode in facts.edges():
        if not (foreign(prefill) and foreign(decode)):
            continue
        pair = young_and_old(facts, prefill, decode)
        if pair is None or any(v.traces.ended is not None for v in (prefill, decode)):
            continue
        young, old, at = pair
        judged = _judge(rule, facts, young, old, at)
        if judged is None:
            continue
        evidence, trouble, certain = judged
        cell = prefill.member.cell
        doubt = [
            Hypothesis(
                f"{old.name} holds stale state of {young.name}'s former life",
                f"restart the pair together (pdctl restart --co {cell}) and send one request over it",
            ),
            Hypothesis(
                f"the new {young.name} differs from the old (settings, address, version)",
                "compare its settings and its advertised address with those of the last good start",
            ),
        ]
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{young.name} was restarted without {old.name}, and transfers between them have not worked since"
            f": {old.name} still holds the peer state of its former life.",
            [*evidence, *quoted([f.event for f in trouble])],
            f"pdctl restart --co {cell}",
            touches=[prefill.name, decode.name],
            since=min(at, since([f.event for f in trouble]) or at),
            hypotheses=() if certain else doubt,
        )
