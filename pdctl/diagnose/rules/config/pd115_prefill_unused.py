"""PD115: the router sends nothing to the prefills."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_COUNTERS = ("requests_total", "finished_total", "prompt_tokens_total")


@rule("PD115", "prefills are never chosen", Severity.ERROR, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode computes prompts itself while every prefill has served nothing: disaggregation in name only.

    What it looks like: no error, answers are right, latency is that of a single engine. The prefills' request
    counters are zero or do not move, and requests reach decode without a remote engine (remote_engine_id is
    null).

    What else it could be: prefills that are ill or refuse are named by their own findings; a fleet without
    traffic has quiet decodes too. Short prompts may be sent to decode alone on purpose (a threshold).

    What to do: set the router's choice of a prefill explicitly (the decider and producer of the endpoint
    picker, --pd-disaggregation of a router) and send one long prompt.
    """
    prefills = [e for e in facts.engines if e.role == "prefill"]
    decodes = [e for e in facts.engines if e.role == "decode"]
    idle = [p for p in prefills if _unused(p) and not died(p) and p.traces.health in ("", "ok")]
    busy = [d for d in decodes if _served(d) > 20]
    if not prefills or len(idle) < len(prefills) or not busy:
        return
    null = facts.events("pair.null_remote")
    yield rule.finding(
        listed(p.name for p in idle),
        f"{listed(p.name for p in idle)} served no request while {listed(d.name for d in busy)} served "
        f"{sum(_served(d) for d in busy):.0f}: the router does not choose a prefill.",
        [*(f"{p.name}: {_told(p)}" for p in idle), *(f"{d.name}: {_told(d)}" for d in busy), *quoted(null)],
        "set the router's prefill choice explicitly, then send one long prompt",
        touches=[*(p.name for p in idle), *([facts.router.name] if hasattr(facts.router, "name") else [])],
    )


def _counters(view: EngineView) -> dict[str, float]:
    return {n: v for n in _COUNTERS if (v := view.traces.last(n)) is not None}


def _unused(view: EngineView) -> bool:
    """Its counters are there and count nothing but warm-up."""
    numbers = _counters(view)
    counted = [numbers[n] for n in _COUNTERS[:2] if n in numbers]
    return bool(numbers) and all(v <= 1 for v in counted) and (bool(counted) or not any(numbers.values()))


def _served(view: EngineView) -> float:
    numbers = _counters(view)
    return max((numbers[n] for n in _COUNTERS[:2] if n in numbers), default=0.0)


def _told(view: EngineView) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in _counters(view).items())
