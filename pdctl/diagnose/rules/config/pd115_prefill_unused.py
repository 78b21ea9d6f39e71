"""PD115: the router sends nothing to the prefills."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_SERVED = ("requests_total", "finished_total")
_HELD = ("running", "waiting", "queue_bootstrap", "queue_inflight")
_BUSY = 20  # requests of the decodes below which a share says nothing
_SHARE = 0.02  # of what the decodes served: what a warm-up is
_STANDING = 0.1  # the same of prefills that nothing reaches while decode serves
_WINDOW = 15.0  # seconds around a statistics line of decode in which a prefill's line speaks of the same time
_LINES = 2  # of decode in which prompts came to it alone


@rule("PD115", "prefills are never chosen", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode computes prompts itself while every prefill has served nothing: disaggregation in name only.

    What it looks like: no error, answers are right, latency is that of a single engine. The prefills' request
    counters are those of a warm-up and do not move while decode's do, and requests reach decode without a
    remote engine (remote_engine_id is null).

    What else it could be: prefills that are ill or refuse are named by their own findings; a fleet without
    traffic has quiet decodes too. Short prompts may be sent to decode alone on purpose (a threshold).

    What to do: set the router's choice of a prefill explicitly (the decider and producer of the endpoint
    picker, --pd-disaggregation of a router) and send one long prompt.
    """
    prefills = [e for e in facts.engines if e.role == "prefill"]
    decodes = [e for e in facts.engines if e.role == "decode"]
    able = all(not died(p) and p.traces.health in ("", "ok") for p in prefills)
    counted = [_served(p) for p in prefills]
    if not prefills or not able:
        return
    if any(c is None for c in counted):
        yield from _by_lines(rule, facts, prefills, decodes)
        return
    idle, busy = sum(c or 0.0 for c in counted), sum(_served(d) or 0.0 for d in decodes)
    if not (busy > _BUSY and _unused(idle, busy, prefills, decodes)):
        return
    names = listed(p.name for p in prefills)
    null = facts.events("pair.null_remote")
    yield rule.finding(
        names,
        f"{names} served {idle:.0f} requests while {listed(d.name for d in decodes)} served {busy:.0f}: "
        "the router does not choose a prefill.",
        [*(f"{p.name}: {_told(p)}" for p in (*prefills, *decodes)), *quoted(null)],
        "set the router's prefill choice explicitly, then send one long prompt",
        touches=[
            *(p.name for p in prefills),
            *([facts.router.name] if hasattr(facts.router, "name") else []),
        ],
    )


def _by_lines(
    rule: Rule, facts: Facts, prefills: list[EngineView], decodes: list[EngineView]
) -> Iterator[Finding]:
    """The same by statistics lines: prompts come to decode while every prefill shows none and holds none."""
    alone = [
        (d, r)
        for d in decodes
        for r in d.traces.readings
        if r.numbers.get("prompt_tps") and r.at is not None and all(_quiet(p, r.at) for p in prefills)
    ]
    if len(alone) < _LINES:
        return
    names, whose = listed(p.name for p in prefills), listed(dict.fromkeys(d.name for d, _ in alone))
    yield rule.finding(
        names,
        f"{names} computed nothing while prompts came to {whose}: the router does not choose a prefill.",
        [
            *(f"{d.name}: {r.numbers['prompt_tps']:g} prompt tokens a second" for d, r in alone[:3]),
            *(f"{p.name}: 0 prompt tokens a second, nothing running, all the while" for p in prefills),
            *quoted(facts.events("pair.null_remote")),
        ],
        "set the router's prefill choice explicitly, then send one long prompt",
        touches=[p.name for p in prefills],
    )


def _quiet(prefill: EngineView, at: float) -> bool:
    """It printed statistics at that time, and they show no work at all."""
    near = [r.numbers for r in prefill.traces.readings if r.at is not None and abs(r.at - at) <= _WINDOW]
    named = [n for n in near if "prompt_tps" in n]
    return bool(named) and not any(n.get(w) for n in near for w in ("prompt_tps", *_HELD))


def _unused(idle: float, busy: float, prefills: list[EngineView], decodes: list[EngineView]) -> bool:
    """By what both sides served since their start, and by what came to them between two looks."""
    came, reached = [_arrived(p) for p in prefills], [_arrived(d) for d in decodes]
    if any(c is None for c in (*came, *reached)):
        return idle <= _SHARE * busy
    if any(came) or any(_holds(p) for p in prefills):
        return False
    new = sum(c or 0.0 for c in reached)
    # Prefills that were chosen once are not any more when many requests came to decode alone.
    return (idle <= _STANDING * busy and new > 0) or idle <= _SHARE * busy or new > _BUSY


def _served(view: EngineView) -> float | None:
    """Requests since its start; of an engine that counts only tokens whether there were any, as 0 or 1."""
    counted = [v for n in _SERVED if (v := view.traces.last(n)) is not None]
    tokens = view.traces.last("prompt_tokens_total")
    return max(counted) if counted else None if tokens is None else float(tokens > 0)


def _arrived(view: EngineView) -> float | None:
    """Requests that came to it between the first look and the last: those it finished, and by how many it
    holds more. None without two looks.
    """
    moved = [m for n in _SERVED if (m := view.traces.moved(n)) is not None]
    if not moved:
        return None
    prompts = view.traces.moved("prompt_tokens_total") if view.role == "prefill" else None
    more = sum(view.traces.moved(n) or 0.0 for n in _HELD[:2])
    return max(0.0, max(moved) + more, float(bool(prompts)))


def _holds(view: EngineView) -> bool:
    return any(view.traces.last(n) for n in _HELD)


def _told(view: EngineView) -> str:
    """Its counters, and how far they moved where it was looked at twice."""
    said = []
    for name in (*_SERVED, "prompt_tokens_total"):
        value, moved = view.traces.last(name), view.traces.moved(name)
        if value is not None:
            said.append(f"{name} {value:g}" + (f" (+{moved:g})" if moved is not None else ""))
    return ", ".join(said)
