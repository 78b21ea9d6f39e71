"""PD621: host memory of requests that were retracted and then aborted."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Traces
from pdctl.diagnose import aborts
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import values
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_GROWN = 1.15
_GIB = 1 << 30


def _retracted(seen: Traces) -> bool:
    return bool(seen.moved("retracted_total") or list(seen.of("sglang.retracted")))


@rule("PD621", "host memory of retracted requests leaks", Severity.WARNING, ["readings"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A retracted request's KV is copied to host memory, and an abort does not free the copy.

    What it looks like: the process's memory rises in steps, one for each retraction that a cancel follows,
    and stays; KV on the GPU is normal.

    What else it could be: memory that rises smoothly with the number of transfers is a registration cache.
    KV usage on the GPU that rises is PD611.

    What to do: restart decode before the host runs out, `pdctl restart NAME`; avoid retraction with more
    KV headroom; take a build that frees the copy.
    """
    for view in facts.engines:
        rss = values(view.traces, "rss_bytes")
        cancelled = aborts.evidence(view.traces)
        if len(rss) < 2 or not cancelled or not _retracted(view.traces):
            continue
        if rss[-1] < _GROWN * rss[0] or rss[-1] - rss[0] < _GIB or min(rss[1:]) < rss[0]:
            continue
        lines = list(view.traces.of("sglang.retracted"))
        shown = ", ".join(f"{n / _GIB:.0f}" for n in rss)
        yield rule.finding(
            view.name,
            f"{view.name} keeps the host copies of retracted requests that were aborted: its memory rose "
            f"from {rss[0] / _GIB:.0f} to {rss[-1] / _GIB:.0f} GiB.",
            [f"memory of the process, GiB: {shown}", *quoted(lines, 1), *cancelled],
            f"pdctl restart {view.name}",
            since=since(lines),
        )
