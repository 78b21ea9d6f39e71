"""What a supervisor costs: a thousand simulated engines looked at every five seconds, by one process.

The engines are real HTTP answers of a process beside it (tests/pdctl/supervisor/sim.py), made of what real
engines said; the supervisor's half is the real one: probes, pictures, history, pages. Its share of a core is
its own CPU time of a look over five seconds, which other work on the machine changes little; how long a look
takes, it does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from pdctl.fleet.load import load_fleet
from pdctl.flows.context import Context
from pdctl.flows.supervise.observe import Observer
from pdctl.supervisor.record import Record
from tests.bench.procs import BenchError, Procs, free_ports
from tests.bench.stats import percentile, table
from tests.pdctl.supervisor.sim import fleet_file


@dataclass(frozen=True)
class Plan:
    """A look every `every` seconds; `looks` are measured after `warm` others, the first of which opens every
    connection.
    """

    engines: int
    looks: int
    warm: int = 2
    every: float = 5.0


FULL, QUICK = Plan(1000, 24), Plan(1000, 6)


def run(plan: Plan, logs: Path) -> tuple[str, dict[str, object]]:
    """The supervisor is a process of its own (this module's main), so that its memory is nobody else's."""
    with tempfile.TemporaryDirectory(prefix="pdctl-bench-") as place, Procs(logs) as procs:
        port = free_ports(1)[0]
        argv = [sys.executable, "-m", "tests.pdctl.supervisor.sim", str(plan.engines), str(port)]
        sim = procs.start("sim", argv)
        procs.wait("the simulated fleet", lambda: "up" in procs.tail("sim"), 60)
        fleet_file(Path(place), plan.engines, port)
        out = Path(place) / "result.json"
        numbers = map(str, (plan.looks, plan.warm, plan.every, sim))
        argv = [sys.executable, "-m", "tests.bench.supervise", place, *numbers, str(out)]
        procs.start("supervisor", argv)
        seconds = (plan.looks + plan.warm + 5) * (plan.every + 10) + 60
        procs.wait("the measurement", out.is_file, seconds)
        result = json.loads(out.read_text())
    if result["answered"] < 0.99:
        raise BenchError(
            f"only {result['answered']:.1%} of the answers came: this machine is too busy for it."
        )
    rows = [
        ["engines, cells, hosts", f"{plan.engines}, {result['cells']}, {result['cells']}"],
        ["CPU of a core", f"{result['cpu']:.1%}"],
        ["  of it probes and pictures", f"{result['cpu_look']:.1%}"],
        ["  of it history", f"{result['cpu_keep']:.1%}"],
        ["memory after the first look, at the end", f"{result['rss_first']:.0f}, {result['rss']:.0f} MB"],
        ["look p50, p99", f"{result['look_p50']:.2f}, {result['look_p99']:.2f} s"],
        [
            "history's transaction p50, p99",
            f"{result['keep_p50'] * 1e3:.0f}, {result['keep_p99'] * 1e3:.0f} ms",
        ],
        ["/api/now, /metrics", f"{result['now'] * 1e3:.0f}, {result['metrics'] * 1e3:.0f} ms"],
        ["/api/history, an hour of one cell", f"{result['page'] * 1e3:.0f} ms"],
        ["answers that came", f"{result['answered']:.2%}"],
        ["looks behind their time", f"{result['behind']:.0%}"],
        ["nobody answers: first look, then", f"{result['mute_first']:.1f}, {result['mute']:.1f} s"],
        ["nobody answers: CPU of a core", f"{result['cpu_mute']:.1%}"],
    ]
    return table(["one supervisor", f"every {plan.every:g} s"], rows), {"engines": plan.engines, **result}


async def mute(observer: Observer, sim: int, every: float) -> dict[str, float]:
    """Looks at the fleet after it has gone silent as one: the first does not know it yet."""
    os.kill(sim, signal.SIGUSR1)
    took, used = [], []
    while len(took) < 2:
        begin, cpu = time.monotonic(), time.process_time()
        look = await observer.look()
        if look.nobody_answers:  # not the one that the signal came into
            took.append(time.monotonic() - begin)
            used.append(time.process_time() - cpu)
        await asyncio.sleep(max(0.0, every - (time.monotonic() - begin)))
    return {
        "mute_first": took[0],
        "mute": took[1],
        "cpu_mute": used[1] / every,
    }


async def measure(place: Path, looks: int, warm: int, every: float, sim: int) -> dict[str, float]:
    fleet = load_fleet(str(place / "fleet.toml"))
    me = psutil.Process()
    spans: list[tuple[float, float, float, float]] = []  # look s, look CPU, keep s, keep CPU
    answered, rss_first = 0, 0.0
    with Context(fleet) as ctx, Record(fleet, lambda text: None, every, "127.0.0.1:0") as record:
        # Hosts are simulated by address alone: nothing is asked over a transport.
        async with Observer(ctx, hosts_every=1e9) as observer:
            observer._begin_hosts = lambda now: None  # type: ignore[method-assign]
            began, used = time.monotonic(), time.process_time()
            for number in range(warm + looks):
                if number == warm:
                    began, used = time.monotonic(), time.process_time()
                begin, cpu = time.monotonic(), time.process_time()
                look = await observer.look()
                looked, cpu_looked = time.monotonic(), time.process_time()
                record.keep(look)
                spans.append(
                    (
                        looked - begin,
                        cpu_looked - cpu,
                        time.monotonic() - looked,
                        time.process_time() - cpu_looked,
                    )
                )
                answered += sum(e.answered for e in look.engines) if number >= warm else 0
                rss_first = rss_first or me.memory_info().rss / 1e6
                await asyncio.sleep(max(0.0, every - (time.monotonic() - begin)))
            passed, cpu = time.monotonic() - began, time.process_time() - used
            silence = await mute(observer, sim, every)
        assert record.pages is not None
        url = record.pages.url
        page = await asyncio.to_thread(_seconds, f"{url}/api/history?kind=cell&names=c0&seconds=3600")
        now = await asyncio.to_thread(_seconds, f"{url}/api/now")
        metrics = await asyncio.to_thread(_seconds, f"{url}/metrics")
    took = spans[warm:]
    return {
        **silence,
        "cells": len(fleet.cells),
        "looks": looks,
        "cpu": cpu / looks / every,
        "cpu_look": sum(s[1] for s in took) / looks / every,
        "cpu_keep": sum(s[3] for s in took) / looks / every,
        "behind": passed / looks / every - 1,
        "rss_first": rss_first,
        "rss": me.memory_info().rss / 1e6,
        "look_p50": percentile([s[0] for s in took], 0.5),
        "look_p99": percentile([s[0] for s in took], 0.99),
        "keep_p50": percentile([s[2] for s in took], 0.5),
        "keep_p99": percentile([s[2] for s in took], 0.99),
        "page": page,
        "now": now,
        "metrics": metrics,
        "answered": answered / (looks * len(list(fleet.engines()))),
    }


def _seconds(url: str) -> float:
    """What a page waits for this document."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        began = time.monotonic()
        client.get(url).raise_for_status()
        return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = {"place": Path, "looks": int, "warm": int, "every": float, "sim": int, "out": Path}
    for name, kind in kinds.items():
        parser.add_argument(name, type=kind)
    args = parser.parse_args()
    result = asyncio.run(measure(args.place, args.looks, args.warm, args.every, args.sim))
    args.out.with_suffix(".part").write_text(json.dumps(result))
    args.out.with_suffix(".part").rename(args.out)


if __name__ == "__main__":
    main()
