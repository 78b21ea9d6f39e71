"""What the router costs: the same pair through the router, and with both legs sent by the client itself.

Short prompts and outputs, one client, the two ways in turn. The client that sends both legs does what the
router does for it, so what differs is the router's own time and one more connection.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from pathlib import Path

import psutil

from tests.bench import fleet
from tests.bench.load import Sample, Target, one, prompts
from tests.bench.procs import BenchError, Procs
from tests.bench.stats import percentile, show, spread, table

PROMPT, OUTPUT = 16, 8
SECONDS, LEAST = 120.0, 20  # after so long, and so many requests each way, it is enough


def direct_legs(pair: fleet.Pair) -> tuple[Target, Target]:
    """Prefill and decode legs of one new room."""
    fields: dict[str, object] = {
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": pair.link_port,
        "bootstrap_room": secrets.randbits(62) + 1,
    }
    decode = Target(pair.decode_url, fleet.NAME, fields)
    prefill = Target(pair.prefill_url, fleet.NAME, {**fields, "stream": False, "stream_options": None})
    return prefill, decode


async def both_legs(pair: fleet.Pair, prompt: list[int]) -> Sample:
    prefill, decode = direct_legs(pair)
    first, second = await asyncio.gather(one(prefill, prompt, OUTPUT), one(decode, prompt, OUTPUT))
    return second if first.error is None else replace(second, error=first.error)


def run(model: Path, dtype: str, count: int, logs: Path) -> tuple[str, dict[str, object]]:
    """At most `count` requests each way; returns the printed table and the JSON document."""
    with Procs(logs) as procs:
        pair = fleet.start_pair(procs, fleet.Engine(model, dtype))
        router = psutil.Process(pair.pids[2])
        work = prompts(3, count + 5, PROMPT)
        for prompt in work[:5]:  # warm both ways
            asyncio.run(one(pair.router, prompt, OUTPUT))
            asyncio.run(both_legs(pair, prompt))
        ways: dict[str, list[Sample]] = {"direct": [], "router": []}
        cpu, until = 0.0, time.monotonic() + SECONDS
        for number, prompt in enumerate(work[5:]):
            if number >= LEAST and time.monotonic() > until:
                break
            for way in ways if number % 2 else reversed(ways):
                before = router.cpu_times()
                ask = one(pair.router, prompt, OUTPUT) if way == "router" else both_legs(pair, prompt)
                ways[way].append(asyncio.run(ask))
                after = router.cpu_times()
                if way == "router":
                    cpu += after.user + after.system - before.user - before.system
    errors = [s.error for samples in ways.values() for s in samples if s.error]
    if errors:
        raise BenchError(f"{len(errors)} requests failed: {errors[0]}")
    return _report(ways, cpu / len(ways["router"]))


def _report(ways: dict[str, list[Sample]], cpu: float) -> tuple[str, dict[str, object]]:
    ttft = {way: [s.ttft for s in samples] for way, samples in ways.items()}
    total = {way: [s.seconds for s in samples] for way, samples in ways.items()}
    rows = [
        [way, show(ttft[way], 1e3, 2), f"{percentile(ttft[way], 0.9) * 1e3:.2f}", show(total[way], 1e3, 2)]
        for way in ways
    ]
    extra = [b - a for a, b in zip(ttft["direct"], ttft["router"], strict=True)]
    extra_total = [b - a for a, b in zip(total["direct"], total["router"], strict=True)]
    text = [f"{PROMPT} tokens in, {OUTPUT} out, one client, {len(extra)} requests each way in turn"]
    low, high = percentile(extra, 0.25), percentile(extra, 0.75)
    text += [table(["way", "TTFT ms", "p90", "whole request ms"], rows)]
    text += [
        f"router adds {percentile(extra, 0.5) * 1e3:.2f} ms to TTFT (half of the differences within "
        f"{low * 1e3:.2f}..{high * 1e3:.2f}) and "
        f"{percentile(extra_total, 0.5) * 1e3:.2f} ms to the whole request (medians of paired differences), "
        f"{cpu * 1e3:.2f} ms of CPU a request"
    ]
    document: dict[str, object] = {
        "ttft_s": {way: spread(v) for way, v in ttft.items()},
        "total_s": {way: spread(v) for way, v in total.items()},
        "added_ttft_s": spread(extra),
        "added_total_s": spread(extra_total),
        "router_cpu_s": cpu,
    }
    return "\n".join(text), document
