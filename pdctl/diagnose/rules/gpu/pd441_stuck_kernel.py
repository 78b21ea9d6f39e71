"""PD441: all ranks stand at one place and none gets on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Stack
from pdctl.diagnose.callsites import Site, together
from pdctl.diagnose.collectives import launched
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import past
from pdctl.diagnose.progress import moves, stall, stands
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count

_LOADS = re.compile(r"cuModuleLoad|cuLibraryLoad|cuModuleGetFunction|loadBinary|load_binary|_init_handles")
_WAITS = re.compile(r"(?i)synchronize|cudaEvent|cuGraphLaunch|cudaGraphLaunch|memcpy")
_KERNEL = Hypothesis(
    "a compute kernel (attention, MoE) never ends",
    "cuda-gdb -p PID -ex 'info cuda kernels' on one rank; then another attention backend",
)
_GRAPHS = Hypothesis(
    "it comes with CUDA graphs or large batches alone",
    "once more with --disable-cuda-graph (vLLM: --enforce-eager), then with a smaller batch: does it last?",
)
_LOADING = (
    Hypothesis(
        "a kernel is loaded for the first time while another still runs: the driver waits for the GPU",
        "CUDA_MODULE_LOADING=EAGER, or a warm-up that reaches this path (the place above) before serving",
    ),
    Hypothesis(
        "a kernel before it never ends", "nvidia-smi: busy near 100 % at low power? Switch speculation off"
    ),
)
_COLLECTIVE = (
    Hypothesis(
        "a rank that is not in these stacks did not come",
        "count the stacks against tp x pp on every host; look for an exception in each rank's log",
    ),
    Hypothesis(
        "the way between the ranks: Gloo and NCCL take each their own interface",
        "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on every node; nc -zv between them on a high port",
    ),
)


def _live(at: Site, stacks: list[Stack]) -> tuple[str, tuple[Hypothesis, ...]]:
    """What the place says they wait for."""
    inner = " ".join(stacks[0].frames[:6])
    if _LOADS.search(inner):
        return "where a kernel is loaded", _LOADING
    if at.collective:
        return "in one collective", _COLLECTIVE
    if _WAITS.search(inner):
        return "where the host waits for the GPU", (_KERNEL, _GRAPHS)
    return "at one place", (_KERNEL, _COLLECTIVE[0])


def _hangs(facts: Facts, party: Party) -> list[str]:
    """What shows that they do not only pass by: a watchdog, counters that stand, health that times out."""
    fired = [e for e in party.traces.of("watchdog.fired") if not past(party, e)]
    # A soft one complains of servers that work or have nothing to do, too.
    if stands(party.traces, facts.at) or not any(party.traces.of("start.ready")):
        hard = fired
    else:
        hard = [e for e in fired if e.values.get("soft") != "True"]
    if hard and not moves(party.traces, at=facts.at):
        return quoted(hard)
    if found := stall(party.traces):
        return [found.told]
    return ["health timed out"] if party.traces.health == "timed out" else []


def _by_stacks(rule: Rule, facts: Facts) -> Iterator[Finding]:
    for party in facts.parties:
        found, why = together(party.traces), _hangs(facts, party)
        if found is None or not why:
            continue
        at, stacks = found
        what, live = _live(at, stacks)
        yield rule.finding(
            party.name,
            f"All {len(stacks)} ranks of {party.name} stand {what} and none gets on: {at.place}.",
            [f"{s.process}: {s.frames[0]}" for s in stacks[:2]] + [f"all of them: {at.place}", *why],
            f"pdctl restart --co {party.member.cell}",
            since=since(e for e in party.traces.of("watchdog.fired") if not past(party, e)),
            hypotheses=live,
        )


@rule("PD441", "all ranks stuck at the same operation", Severity.ERROR, ["engine.reach"], echo_of=["PD214"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Every rank has launched the same number of collectives, or stands at the same line, and none gets on.

    What it looks like: GPUs near 100 % busy at low power, no memory traffic, no progress; NCCL's RAS (port
    28028) shows equal counts, twice. Or a watchdog fired and the stacks of all ranks are the same.

    What else it could be: counts or places that differ are ranks out of step (PD440), one that differs is
    the odd rank (PD451). Counts that move are work. One stack says nothing of an engine that works.

    What to do: NCCL waits like everything else here; look at what runs on the GPU. The place says what to
    try first: another attention backend, CUDA graphs off, kernels loaded before serving; one at a time.
    """
    yield from _by_stacks(rule, facts)
    for name, counts in launched(facts).items():
        if counts.spread or not counts.still or counts.dumps < 2:
            continue
        here = [p.name for p in facts.parties if name in (p.member.host, p.name)]
        cell = next((p.member.cell for p in facts.parties if p.name in here), "CELL")
        yield rule.finding(
            name,
            f"All ranks have launched {counts.values[0]} collectives and none more: a stuck kernel or host, "
            "not ranks out of step.",
            [f"equal in {count(counts.dumps, 'dump')}", *counts.lines],
            f"pdctl restart --co {cell}",
            touches=[name, *here],
            hypotheses=[
                _KERNEL,
                Hypothesis(
                    "NCCL itself is stuck", "another NCCL build, or NCCL_P2P_DISABLE=1, under the same load"
                ),
            ],
        )
