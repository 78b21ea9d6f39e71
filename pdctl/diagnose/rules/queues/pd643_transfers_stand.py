"""PD643: decode's transfers stand at one number while it goes on with the few others."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Traces
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import at_cap, cap, stands, values
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import foreign
from pdctl.diagnose.words import span

_FEW, _READINGS, _LONG = 4, 3, 120.0  # rooms, looks, seconds that no busy queue shows one number in
_ROOM = 0.5  # share of KV in use below which a request is not refused for want of pages


def _stuck(seen: Traces) -> float:
    """Seconds for which its transfer queue has had one number, though it has pages for more; else 0."""
    depth, running, usage = values(seen, "queue_transfer"), seen.last("running"), seen.last("kv_usage")
    if len(depth) < _READINGS or len(set(depth[-_READINGS:])) > 1 or depth[-1] < _FEW or at_cap(seen):
        return 0.0
    if usage is None or usage >= _ROOM or running is None or running > depth[-1] / 4:
        return 0.0
    lasts = stands(seen, "queue_transfer")
    return lasts if lasts >= _LONG else 0.0


def _doubts(view: EngineView, peers: list[str]) -> tuple[Hypothesis, ...]:
    peer = peers[0] if peers else "the prefill"
    return (
        Hypothesis(
            "their KV was begun and its end was never said: nothing ends a transfer once it has started",
            f"grep one of these rooms in the log of {peer}: sent, failed or unknown? Then abort it on "
            f"{view.name}: is its place free?",
        ),
        Hypothesis(
            f"{peer} was restarted, or one of its ranks is stuck",
            f"compare the start of {peer} with the time since which the number stands; py-spy dump it",
        ),
    )


@rule(
    "PD643",
    "transfers that never end on decode",
    Severity.ERROR,
    ["readings"],
    echo_of=["PD510", "PD512", "PD610", "PD619"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Rooms stay in decode's transfer queue and keep their places; what is left serves fewer and fewer.

    What it looks like: #transfer-req stands at one number for minutes while #running-req is small, the KV
    pool is nearly empty and requests wait for a place (#prealloc-req). Throughput falls to a fraction; a
    restart of decode cures it for a while. Some connectors have a timer for rooms that wait for their first
    byte and none for rooms whose transfer has begun.

    What else it could be: a full KV pool or running at its cap is capacity (PD630). A number that moves is
    work. With a prefill that shows nothing of these rooms it is the router or a restart (PD527, PD510).

    What to do: abort these rooms, or restart decode with its prefills, `pdctl restart --co CELL`; take a
    build that ends transfers which do not move.
    """
    for view in facts.engines:
        lasts = _stuck(view.traces) if view.role != "prefill" and foreign(view) else 0.0
        if not lasts:
            continue
        seen, peers = view.traces, [p.name for p in facts.engines if p.role == "prefill"]
        depth, running = seen.last("queue_transfer") or 0.0, seen.last("running") or 0.0
        waits, most = seen.last("queue_prealloc") or 0.0, cap(seen)
        places = f" of {most:.0f} places" if most else ""
        yield rule.finding(
            view.name,
            f"{view.name} has kept {depth:.0f}{places} for transfers that do not end, for {span(lasts)}: "
            f"{running:.0f} running, {waits:.0f} waiting, KV {seen.last('kv_usage') or 0.0:.0%} in use.",
            [
                f"{view.name}: transfer {depth:.0f} for {span(lasts)}, running {running:.0f}",
                f"{view.name}: prealloc {waits:.0f}",
            ],
            f"pdctl restart --co {view.member.cell}",
            touches=[view.name, *peers],
            since=facts.at - lasts,
            hypotheses=_doubts(view, peers),
        )
