"""PD638: ranks have unequal free memory and the pool was sized for the lightest."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_SPREAD, _LEAST = 0.2, 4.0  # share of the largest, GiB


def _by_rank(view: EngineView) -> dict[str, float]:
    """The last memory figure of each rank, of the kind that most ranks tell, GiB."""
    kinds: dict[str, dict[str, float]] = {}
    for event in view.traces.of("memory.rank"):
        if event.rank:
            kinds.setdefault(event.values["kind"].lower(), {})[event.rank] = float(event.values["gib"])
    return max(kinds.values(), key=len, default={})


@rule("PD638", "memory is uneven over ranks", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Some ranks hold far more memory outside the pool than others; a pool of one size overflows on them.

    What it looks like: non-torch or free memory that differs by gigabytes between ranks before the first
    large prompt, then out of memory on the heavy ranks. The proxy, which waits for the prefill, hangs: that
    is secondary.

    What else it could be: all ranks equally full is a pool that is too big. Memory of a foreign process
    shows in nvidia-smi.

    What to do: size the pool for the heaviest rank: lower the memory share, or find what the heavy ranks
    hold (communication buffers, a second process).
    """
    for view in facts.engines:
        memory = _by_rank(view)
        oom = list(view.traces.of("memory.oom"))
        if len(memory) < 2 or not (oom or view.traces.ended):
            continue
        low, high = min(memory.values()), max(memory.values())
        if high - low < max(_LEAST, _SPREAD * high):
            continue
        odd = [r for r, n in memory.items() if abs(n - low) > (high - low) / 2]
        yield rule.finding(
            view.name,
            f"{view.name} ran out of memory because its ranks are uneven: {high - low:.0f} GiB between the "
            "heaviest and the lightest, and the KV pool has one size for all.",
            [
                ", ".join(f"{r} {n:g} GiB" for r, n in memory.items()),
                f"apart: {', '.join(odd)}",
                *quoted(oom),
            ],
            "lower the memory share so that the heaviest rank fits, and restart",
            since=since(oom),
        )
