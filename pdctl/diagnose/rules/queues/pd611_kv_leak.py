"""PD611: KV pages are held by nobody: a leak."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Reading
from pdctl.diagnose import aborts
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import FULL, at_work, number
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_SIZES = re.compile(r"(max_total_num_tokens|available_size|evictable_size|protected_size)\D{1,4}(\d+)")
_BUSY = (
    "running", "waiting", "waiting_kv", "queue_bootstrap", "queue_inflight", "queue_prealloc",
    "queue_transfer", "queue_retracted",
)  # fmt: skip
_FLOOR = 0.15  # share of pages that nobody uses on an idle decode
_RISE = 0.05  # a floor that stands may be a frozen gauge
_LEAST = 0.01  # a smaller deficit is a page here and there between two numbers


def _checked(view: EngineView) -> tuple[float, str] | None:
    """(tokens missing, how), from the scheduler's own check or from its four numbers at rest."""
    for event in view.traces.of("sglang.pool_leak", "sglang.pool_sizes"):
        sizes = {name: float(n) for name, n in _SIZES.findall(event.line)}
        if "max_total_num_tokens" in sizes and "available_size" in sizes:
            total = sizes.pop("max_total_num_tokens")
            missing = total - sum(sizes.values())
            if missing > 0:
                return missing, f"{total:.0f} - {' - '.join(f'{n:.0f}' for n in sizes.values())}"
    last = next((r for r in reversed(view.traces.readings) if "kv_available_tokens" in r.numbers), None)
    if last is None or not _resting(last) or "kv_total_tokens" not in last.numbers:
        return None
    total = last.numbers["kv_total_tokens"]
    parts = [last.numbers.get(f"kv_{n}_tokens", 0.0) for n in ("available", "evictable", "protected")]
    missing = total - sum(parts)
    return (
        (missing, f"{total:.0f} - {' - '.join(f'{p:.0f}' for p in parts)}")
        if missing > _LEAST * total
        else None
    )


def _resting(reading: Reading) -> bool:
    """It says that it computes and holds nothing."""
    return "running" in reading.numbers and not any(reading.numbers.get(n, 0.0) for n in _BUSY)


def _floor(view: EngineView) -> list[str]:
    """KV in use while nothing runs; not on a prefill, which keeps KV for decode."""
    rest = [r for r in view.traces.readings if "kv_usage" in r.numbers and _resting(r) and r.rank == ""]
    usage = [r.numbers["kv_usage"] for r in rest]
    if view.role == "prefill" or len(usage) < 2 or usage[-1] < max(_FLOOR, usage[0] + _RISE):
        return []
    steps = ", ".join(f"{u:.0%}" for u in usage[-5:])
    return [f"{view.name}: KV in use with nothing running and nothing waiting: {steps}"]


def _blocked(view: EngineView) -> list[str]:
    """A pool that is full while nothing runs and requests wait."""
    seen = view.traces
    waiting, running, usage = seen.last("waiting"), seen.last("running"), seen.last("kv_usage")
    if not waiting or running is None or running > 0 or usage is None or usage < FULL or at_work(seen):
        return []
    if seen.last("waiting_kv") or seen.last("queue_inflight") or seen.last("queue_retracted"):
        return []
    return [f"{view.name}: {waiting:.0f} waiting, none running, KV {usage:.0%} in use, no token comes out"]


def _shape(view: EngineView, missing: float) -> str:
    chunk = number(view.traces.settings.get("chunked_prefill_size"))
    if chunk and missing % chunk == 0:
        return f", {missing / chunk:.0f} x chunked_prefill_size: a chunk's result came after its abort"
    return ""


@rule("PD611", "KV leak", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """KV pages belong to no request: total - available - evictable - protected is above zero at rest.

    What it looks like: the scheduler's idle check fails with "memory leak detected"; or KV usage has a floor
    that rises from hour to hour and does not fall when nothing runs; or a full pool with requests waiting
    and none running. Nearly always an abort between two steps of a hand-over: a deficit of one request's
    length is an abort after the transfer, one of chunked_prefill_size an abort during an overlapped chunk.

    What else it could be: real load falls when running falls. Prefix cache is evictable and no leak. Pages
    of requests that wait for KV are PD610, free metadata slots that vanish PD614, host memory PD621.

    What to do: restart the engine to get the pages back, `pdctl restart NAME`; take a build with the abort
    fix; stop the cancel storm (clients' timeouts, retries) that feeds it.
    """
    for view in facts.engines:
        checked = _checked(view)
        lines = _floor(view) or _blocked(view)
        dead = list(view.traces.of("sglang.pool_leak"))
        if checked is None and not lines and not dead:
            continue
        if checked:
            lines = [f"deficit {checked[0]:.0f} tokens = {checked[1]}{_shape(view, checked[0])}", *lines]
        cancelled = aborts.evidence(*(e.traces for e in facts.engines))
        sure = bool(checked or dead or cancelled or _floor(view))
        size = f"{checked[0]:.0f} tokens of " if checked else ""
        after = " after aborts" if cancelled else ""
        yield rule.finding(
            view.name,
            f"{view.name} leaks KV: {size}its pages belong to no request{after}.",
            [*lines, *quoted(dead), *cancelled],
            f"pdctl restart {view.name}",
            since=since(dead),
            hypotheses=()
            if sure
            else (
                Hypothesis(
                    "aborted requests keep their pages", "does usage stay when all clients are stopped?"
                ),
                Hypothesis(
                    "one request is larger than what is free", "compare the first waiting prompt's length"
                ),
            ),
        )
