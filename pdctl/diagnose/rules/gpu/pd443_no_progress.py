"""PD443: an engine that says it is well holds requests and makes no token."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import gpus
from pdctl.diagnose.callsites import receiving
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.progress import Stall, stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_FULL = 0.95
_CAUSES = ("PD440", "PD441", "PD442", "PD444", "PD445", "PD447", "PD448", "PD449", "PD450", "PD451", "PD680")


def _hypotheses(facts: Facts, view: EngineView, found: Stall) -> list[Hypothesis]:
    cards = gpus.of_party(facts, view.name)
    usage = view.traces.last("kv_usage")
    stacks = Hypothesis(
        "a rank or thread of it is stuck",
        "py-spy dump --pid PID of each rank, twice: different call sites or one?",
    )
    if cards and all(gpus.idle(g) for g in cards):
        what = (
            "the KV pool is full and nobody gives back" if usage and usage >= _FULL else "its scheduler waits"
        )
        pool = Hypothesis(
            f"a deadlock over resources: GPUs idle, {what}",
            "abort the oldest request and see whether the counters move",
        )
        return [pool, stacks]
    if receiving(view.traces):
        return [*_waits(facts, view), stacks]
    load = Hypothesis("a kernel on the GPU never ends", "nvidia-smi: busy near 100 % at low power is a spin")
    return [*_waits(facts, view), load, stacks]


def _waits(facts: Facts, view: EngineView) -> list[Hypothesis]:
    """Some connectors wait for KV inside a step: the request counts as running."""
    prefills = [e for e in facts.engines if e.role == "prefill"]
    if view.role != "decode" or not prefills or any(stall(e.traces) for e in prefills):
        return []
    return [
        Hypothesis(
            f"it waits for KV that {prefills[0].name} never sends or sends under another name",
            "py-spy dump it: does it stand in recv? Compare the request's id in both logs",
        )
    ]


@rule("PD443", "running and no progress", Severity.ERROR, ["readings"], echo_of=_CAUSES, fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine holds running requests, and its token counters do not move for 10 s and more.

    What it looks like: health 200, /v1/models answers, the supervisor counts no restart, GETs work and
    POSTs hang. Only counters that stand still with requests running tell it from an engine that is well.

    What else it could be: counters that move slowly are load. Nothing running is idle. One rank of several
    that stands still is PD444; a GPU that spins is PD442. A supervisor that looks at exits never sees this.

    What to do: take stacks of every rank and a GPU reading first, then restart the cell. Watch progress,
    not status, from then on.
    """
    for view in facts.engines:
        found = stall(view.traces)
        if found is None or not found.running:
            continue
        traces = view.traces
        lines = [found.told]
        if traces.health == "ok":
            lines.append("health answers ok all the while")
        if traces.restarts == 0:
            lines.append(
                "its unit is active and counts no restart: a policy that sees only exits does not act"
            )
        waits = receiving(traces)
        lines += [f"it stands in {waits}"] if waits else []
        lines += [gpus.told(g) for g in gpus.of_party(facts, view.name)[:4]]
        yield rule.finding(
            view.name,
            f"{view.name} holds {found.running:g} running requests and makes no token"
            + (": it waits for KV inside a step." if waits else "."),
            lines,
            f"pdctl restart --co {view.member.cell}",
            since=found.since,
            hypotheses=_hypotheses(facts, view, found),
        )
