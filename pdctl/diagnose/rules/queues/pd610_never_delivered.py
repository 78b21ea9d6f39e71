"""PD610: decode keeps pages for requests whose KV will never come."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import aborts
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.expiries import expiries
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import at_work, stands
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count, span

_HIGH = 0.5  # share of pages in use that so few running requests do not explain
_FEW = 2
_STILL = 60.0  # seconds in which none of them came and nothing ran


def _held(view: EngineView) -> tuple[float, list[str]] | None:
    """(requests that wait for KV, evidence), None when pages and running requests fit together."""
    seen = view.traces
    waiting = seen.last("waiting_kv") or float(
        len({e.values.get("id", e.where) for e in seen.of("vllm.waiting_remote")})
    )
    usage, running = seen.last("kv_usage"), seen.last("running")
    few = running is not None and running <= max(_FEW, waiting / 4)
    still = running == 0 and stands(seen, "waiting_kv") >= _STILL and not at_work(seen)
    if not waiting or usage is None or not few or (usage < _HIGH and not still):
        return None
    lines = [
        f"{view.name}: KV {usage:.0%} in use with {running:.0f} running and {waiting:.0f} waiting for KV"
    ]
    first = seen.numbers("kv_usage")
    if len(first) > 1 and first[0][1] < usage:
        lines.append(f"KV in use rose from {first[0][1]:.0%} to {usage:.0%}")
    return waiting, [*lines, *quoted(list(seen.of("vllm.waiting_remote")), 1)]


@rule("PD610", "pages held for KV that never comes", Severity.ERROR, ["readings"], echo_of=["PD510"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Requests wait on decode for KV that no prefill will send any more, and their pages are never freed.

    What it looks like: decode's KV usage climbs while few requests run; requests stand in
    WAITING_FOR_REMOTE_KVS for longer than the prefill keeps KV (480 s on old vLLM and Mooncake, the lease on
    newer); decode has no deadline of its own. It follows transfer errors, or aborts on both sides.

    What else it could be: usage that falls when running falls is load. Usage with nothing waiting for KV is
    a leak of another kind (PD611). Decode at its cap with tokens coming is capacity.

    What to do: restart decode to get the pages back, `pdctl restart NAME`; take a build with a deadline on
    decode's side. Stop what made the prefill give up, or the cancel storm.
    """
    for view in facts.engines:
        if view.role == "prefill" or (held := _held(view)) is None:
            continue
        waiting, lines = held
        prefills = [p for p in facts.engines if p.role == "prefill"]
        gone = expiries(facts, [p.name for p in prefills])
        cancelled = aborts.evidence(view.traces)
        age = view.traces.last("waiting_kv_age")
        if gone.unread:
            why = f"the prefill gave {count(len(gone.ids), 'of them', 'of them')} up and decode was not told"
        elif cancelled:
            why = "they were aborted while they waited, and only the other side's notice would free them"
        else:
            why = "no prefill sends it and decode has no deadline for it"
        if age is not None:
            lines.append(f"the oldest waits for {span(age)}")
        doubts = [
            Hypothesis("the prefill gave up long ago", "compare the oldest wait with the prefill's KV timer"),
            Hypothesis(
                "transfers still run and are slow", "read kv_usage and the NIC's counters again in 60 s"
            ),
        ]
        yield rule.finding(
            view.name,
            f"{view.name} holds pages for {count(int(waiting), 'request')} whose KV never comes: {why}.",
            [*lines, *quoted(list(gone.unread)), *cancelled],
            f"pdctl restart {view.name}",
            touches=[view.name, *(p.name for p in prefills)],
            since=since(gone.unread) or since(view.traces.of("vllm.waiting_remote")),
            hypotheses=() if gone.unread or cancelled or age is not None else doubts,
        )
