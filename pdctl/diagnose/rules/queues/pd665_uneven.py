"""PD665: one engine gets the work of several."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.progress import moves
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_MANY = 8.0  # running on the loaded one, so that a few requests are no imbalance
_SHARE = 0.2


def _load(view: EngineView) -> float | None:
    running = view.traces.last("running")
    return None if running is None else running + (view.traces.last("waiting") or 0.0)


@rule("PD665", "one engine gets the work of several", Severity.WARNING, ["readings"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Engines of one role are well, and nearly all requests are on one of them, some waiting.

    What it looks like: requests wait on one engine while its siblings are idle.

    What else it could be: an engine that has just started or drains has less on purpose. Sticky sessions
    and prefix affinity put work together by design: then nothing waits for long. A router that counts
    wrongly is PD663 or PD664, one that deems engines unfit PD662.

    What to do: compare the router's counts per worker with what the engines hold, and try round robin for a
    moment.
    """
    for role in ("prefill", "decode", "both"):
        loads = [
            (load, view)
            for view in facts.engines
            if view.role == role and view.traces.health in ("", "ok") and (load := _load(view)) is not None
        ]
        if len(loads) < 2:
            continue
        loads.sort(key=lambda pair: pair[0])
        (most, full), rest = loads[-1], loads[:-1]
        waits = full.traces.last("waiting") or 0.0
        if (
            most < _MANY
            or not waits
            or not moves(full.traces)
            or max(load for load, _ in rest) > _SHARE * most
        ):
            continue
        yield rule.finding(
            full.name,
            f"{full.name} holds {most:g} requests, {waits:g} of them wait, and its siblings are nearly idle.",
            [f"{v.name}: {load:g}" for load, v in loads],
            "compare the router's counts per worker with these; try its round robin policy",
            hypotheses=[
                Hypothesis("the router counts wrongly or keeps the others out", "its own metrics per worker"),
                Hypothesis("its policy puts equal prefixes together", "round robin for five minutes"),
            ],
        )
