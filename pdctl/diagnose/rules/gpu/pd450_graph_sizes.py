"""PD450: CUDA graphs captured far beyond the usual sizes, and a hang at high load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pdctl.diagnose.facts import Facts
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_SIZES = re.compile(
    r"cuda_?graph_(?:capture_)?(?:sizes?|bs|max_bs)|max_cudagraph_capture_size|cuda_graph_max_bs"
)
_USUAL = 512


def _largest(settings: Mapping[str, str]) -> tuple[str, int] | None:
    for name, value in settings.items():
        if _SIZES.search(name):
            numbers = [int(n) for n in re.findall(r"\d+", value)]
            if numbers:
                return name, max(numbers)
    return None


@rule("PD450", "oversized CUDA graphs", Severity.ERROR, ["settings", "readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine that captures CUDA graphs for very large batches stands still with a large batch running.

    What it looks like: hundreds of running requests, 0.0 tokens/s, hardly any KV in use; only at high load,
    never at small batches. Its flags name graph sizes beyond the default.

    What else it could be: the same stall with default sizes is another one (PD442, PD443).

    What to do: take the flag away and restart; if the hang is gone, it was that.
    """
    for view in facts.engines:
        found, sizes = stall(view.traces), _largest(view.traces.settings)
        if found is None or sizes is None or sizes[1] <= _USUAL or found.running < 64:
            continue
        name, largest = sizes
        yield rule.finding(
            view.name,
            f"{view.name} stands still with {found.running:g} running; its CUDA graphs reach {largest}.",
            [found.told, f"{name} reaches {largest}; the default ends at {_USUAL}"],
            f"take {name} out of its flags, then: pdctl deploy",
            since=found.since,
        )
