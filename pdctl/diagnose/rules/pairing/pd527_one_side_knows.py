"""PD527: one side of a pair waits for rooms that the other does not have."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Traces
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import at_work, stands, values
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import foreign
from pdctl.diagnose.words import listed, span

_OF = {"decode": ("queue_prealloc", "queue_transfer"), "prefill": ("queue_bootstrap",)}
_LONG = 30.0  # seconds in which nothing moved


def _held(seen: Traces, role: str) -> tuple[float, float]:
    """(rooms that wait for the other side, seconds for which that has not fallen)."""
    most = (0.0, 0.0)
    for queue in _OF[role]:
        depth = values(seen, queue)
        rising = len(depth) > 1 and depth[-1] > 0 and depth == sorted(depth)
        times = [at for at, _ in seen.numbers(queue) if at is not None]
        lasts = max(stands(seen, queue), times[-1] - times[0] if rising and times else 0.0)
        if depth and depth[-1] > 0 and lasts >= _LONG:
            most = max(most, (depth[-1], lasts))
    return most


def _empty(view: EngineView) -> bool:
    """It says that it has nothing of the kind, and that it computes nothing."""
    seen = view.traces
    queues = [*_OF[view.role], *(["queue_inflight"] if view.role == "prefill" else [])]
    shown = [seen.last(q) for q in queues if seen.last(q) is not None]
    return bool(shown) and not any(shown) and not seen.last("running") and not at_work(seen)


def _doubts(waiting: str, others: str, role: str) -> list[Hypothesis]:
    leg = "prefill" if role == "decode" else "decode"
    return [
        Hypothesis(
            f"the router's {leg} leg failed or was never sent",
            f"look up one of these rooms in the access log of {others}: no record or an HTTP error?",
        ),
        Hypothesis(
            f"{others} was restarted and lost them, or {waiting} has its old address",
            f"compare the start of {others} with the age of the oldest room",
        ),
        Hypothesis(
            f"the numbers of {others} are frozen",
            f"GET /health_generate on {others} and read its queues again",
        ),
    ]


@rule("PD527", "rooms that only one side knows", Severity.ERROR, ["readings"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Rooms wait on one side for the other, which shows empty queues and computes nothing.

    What it looks like: decode's prealloc or transfer queue stands or rises while every prefill is idle and
    empty; or a prefill's bootstrap queue does while decode is. Both answer health.

    What else it could be: a router that checks neither leg, a restart in between, an address of a former
    life, or telemetry that froze with hidden work. Decode at its cap is capacity (PD630).

    What to do: look up one room on both sides. Abort what only one side knows; mend the leg that failed.
    """
    for role, other in (("decode", "prefill"), ("prefill", "decode")):
        others = [e for e in facts.engines if e.role == other and foreign(e)]
        if not others or not all(_empty(o) for o in others):
            continue
        for view in facts.engines:
            rooms, lasts = _held(view.traces, role) if view.role == role else (0.0, 0.0)
            if not rooms or not foreign(view) or view.traces.last("running") or at_work(view.traces):
                continue
            names = listed(o.name for o in others)
            yield rule.finding(
                view.name,
                f"{view.name} has waited {span(lasts)} with {rooms:.0f} rooms for {names}, which shows none "
                "of them and computes nothing.",
                [f"{view.name}: {q} {n:.0f}" for q in _OF[role] if (n := view.traces.last(q)) is not None]
                + [f"{o.name}: queues empty, nothing running" for o in others],
                f"pdctl logs {others[0].name}",
                touches=[view.name, *(o.name for o in others)],
                since=facts.at - lasts,
                hypotheses=_doubts(view.name, names, role),
            )
