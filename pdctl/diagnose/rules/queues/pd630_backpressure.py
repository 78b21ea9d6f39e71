"""PD630: decode is at its cap and prefills wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import at_cap, at_work, grows, values
from pdctl.diagnose.rooms import Kind, failures
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.starts import foreign
from pdctl.diagnose.words import count, listed

_MANY = 32
_BURST = 60.0  # seconds
_SHORT = 5.0  # seconds of a timer
_QUEUES = ("queue_bootstrap", "queue_inflight")


def _endless(view: EngineView, queue: str) -> bool:
    """It grows for longer than a burst of requests takes to arrive."""
    depth = values(view.traces, queue)
    times = [at for at, _ in view.traces.numbers(queue) if at is not None]
    return grows(depth) and depth[-1] >= _MANY and (not times or times[-1] - times[0] >= _BURST)


def _waiting(view: EngineView) -> tuple[list[str], bool]:
    """(what waits on a prefill, whether it grows without an end)."""
    lines, endless = [], False
    for queue in _QUEUES:
        depth = values(view.traces, queue)
        if depth and depth[-1] > 0:
            shown = " -> ".join(f"{d:.0f}" for d in depth[-4:])
            lines.append(f"{view.name}: {queue} {shown}")
            endless = endless or _endless(view, queue)
    return lines, endless


@rule("PD630", "decode at its cap, prefills wait", Severity.ERROR, ["readings"], role="amplifier")
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode admits no more requests because it is full and works; what prefills have ready waits for it.

    What it looks like: #unbootstrapped-req or the inflight queue grows on the prefill, TTFT rises, decode
    runs at its cap or its KV is full, and tokens come. A queue that stands is healthy saturation. One that
    grows without an end is a wrong ratio of prefill to decode; rooms that end at the bootstrap timer are
    requests lost to it.

    What else it could be: the same failures with an idle decode are a broken link (PD525). A full pool with
    nothing running is a leak (PD611, PD620).

    What to do: add decode capacity (another decode, max running requests, more KV) or take prefill away;
    limit the rate at the router. Raise SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT only above the real wait.
    """
    decodes = [e for e in facts.engines if e.role == "decode" and foreign(e)]
    full = {d.name: why for d in decodes if (why := at_cap(d.traces)) and at_work(d.traces)}
    if not full or len(full) < len(decodes):
        return
    lines, endless = [], False
    prefills = [e for e in facts.engines if e.role == "prefill"]
    for view in prefills:
        told, more = _waiting(view)
        lines += told
        endless = endless or more
    lost = [
        f
        for f in failures(facts)
        if f.kind is Kind.TIMEOUT and (f.seconds or 0) >= _SHORT and f.event.sign != "vllm.kv_expired"
    ]
    for view in decodes:
        if _endless(view, "waiting"):
            lines.append(f"{view.name}: waiting grew to {view.traces.last('waiting'):.0f}")
            endless = True
    if not lines and not lost:
        return
    severity = Severity.ERROR if lost else Severity.WARNING if endless else Severity.INFO
    ended = f"; {count(len(lost), 'request')} ended at the timer while waiting" if lost else ""
    yield rule.finding(
        listed(full),
        f"{listed(full)} is at its cap and works; prefills wait for it: decode capacity is too small for "
        f"what the prefills deliver{ended}.",
        [*(f"{name}: {why}" for name, why in full.items()), *lines, *quoted([f.event for f in lost])],
        "add decode capacity or limit the rate at the router",
        touches=[*full, *(p.name for p in prefills)],
        since=min((f.began for f in lost if f.began is not None), default=None),
        severity=severity,
    )
