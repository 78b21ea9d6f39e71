"""PD613: pipeline stages or ranks took different decisions and wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Traces
from pdctl.diagnose import aborts
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_work
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_QUEUES = ("waiting", "queue_bootstrap", "queue_inflight", "queue_prealloc", "queue_transfer")


def _depths(seen: Traces) -> list[str]:
    """Queues whose depth differs between ranks and stands."""
    lines = []
    for queue in _QUEUES:
        depth = {r: seen.last(queue, r) for r in seen.ranks}
        if len({d for d in depth.values() if d is not None}) > 1:
            lines.append(f"{queue}: " + ", ".join(f"{r} {d:.0f}" for r, d in depth.items() if d is not None))
    return lines


def _ordinals(seen: Traces) -> list[str]:
    last = {e.rank: e.values["n"] for e in seen.of("sglang.batch_ordinal") if e.rank and "n" in e.values}
    if len(set(last.values())) < 2:
        return []
    return ["last batch: " + ", ".join(f"{rank} {n}" for rank, n in sorted(last.items()))]


def _sites(seen: Traces) -> list[str]:
    tops = {s.process or s.thread: s.frames[0] for s in seen.stacks if s.frames}
    if len(set(tops.values())) < 2:
        return []
    return [f"{len(tops)} schedulers stand in {len(set(tops.values()))} different places"]


def _apart(signs: list[list[str]]) -> bool:
    """Depths or ordinals differ, and a second thing agrees with that."""
    depths, ordinals, _ = signs
    return bool(depths or ordinals) and (sum(map(bool, signs)) > 1 or len(depths) > 1)


@rule("PD613", "ranks diverged after aborts", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Stages applied aborts in different order; their queues differ and each waits in another call.

    What it looks like: an engine that stopped after a burst of cancels, health 200; waiting and bootstrap
    depths that differ between pipeline stages; one stage a batch ahead of another; scheduler threads in
    different point-to-point calls; gloo's "op.preamble.length <= op.nbytes", which says that ranks came to
    a collective with queues of different length. The collective watchdog speaks only an hour later.

    What else it could be: all ranks in the same collective is fabric or GPU. A queue that stands on one
    rank with no traffic and a live engine is an orphan (PD612).

    What to do: restart the engine, `pdctl restart NAME`, and stop the router from replaying the cancelled
    requests; take a build in which the stages agree on aborts.
    """
    for view in facts.engines:
        seen = view.traces
        cancelled = aborts.lines(seen)
        signs = [_depths(seen), _ordinals(seen), _sites(seen)]
        diverged = [line for lines in signs for line in lines]
        sizes = list(seen.of("sglang.ranks_differ"))
        if not sizes and not (cancelled and _apart(signs) and not at_work(seen)):
            continue
        yield rule.finding(
            view.name,
            f"{view.name} is deadlocked by itself: its stages applied aborts in different order and "
            "no longer agree on the next batch.",
            [*quoted(sizes), *diverged, *aborts.evidence(seen)],
            f"pdctl restart {view.name}",
            since=since(cancelled) or since(sizes),
        )
