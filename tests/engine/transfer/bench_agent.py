"""KV throughput of the agent against a raw NIXL write of the same descriptors, and the idle agent's CPU.

Run from the project root: python -m tests.engine.transfer.bench_agent [rounds]. Prints one JSON object.
Pages are SmolLM2-135M's (30 layers, 3 KV heads of 64, 16 slots), 512 tokens, shuffled page order; both
sides are processes; medians of alternating rounds. `halves`: to pages of half the size, a descriptor for
each head, layer, k/v and half.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import threading
import time
from multiprocessing.connection import Connection

import numpy as np
import torch
from nixl._api import nixl_agent, nixl_agent_config

from engine.core.types import Shape
from engine.transfer import commands as c
from engine.transfer.agent import AgentThread
from engine.transfer.layout import page_bytes, units_of

PAGES, TOKENS = 80, 512


def shape(itemsize: int) -> Shape:
    return Shape(layers=30, kv_heads=3, head_dim=64, page_size=16, itemsize=itemsize)


def make_agent(name: str, itemsize: int, report: object) -> tuple[AgentThread, torch.Tensor]:
    dtype = torch.float32 if itemsize == 4 else torch.bfloat16
    pool = torch.zeros(PAGES, 3, 30, 2, 16, 64, dtype=dtype)
    kv = shape(itemsize)
    agent = AgentThread(name=name, rank=0, heads=(0, 3), shape=kv, pool=pool, report=report)  # type: ignore[arg-type]
    agent.start()
    return agent, pool


def thread_cpu(native_id: int) -> float:
    fields = open(f"/proc/self/task/{native_id}/stat").read().rsplit(")", 1)[1].split()  # noqa: SIM115
    return (int(fields[11]) + int(fields[12])) / 100


def receive(pipe: Connection, itemsize: int) -> None:
    """The decode process: an agent thread that polls; measures its idle CPU when asked."""
    agent, _ = make_agent("dst", itemsize, lambda report: None)
    agent.submit(c.AddPeer(peer="s", tp=1, metadata=[], bases=[], devices=[], heads=[], pages=2, write=False))
    pipe.send(agent.info)
    native = next(t.native_id for t in threading.enumerate() if t.name == "transfer")
    while pipe.recv() == "idle":
        before = thread_cpu(native or 0)
        time.sleep(5)
        pipe.send((thread_cpu(native or 0) - before) / 5)


class Raw:
    """The same writes on a bare NIXL agent in this thread."""

    def __init__(self, pool: torch.Tensor, info: c.AgentInfo, size: int) -> None:
        self.agent = nixl_agent("raw", nixl_agent_config(enable_prog_thread=False))
        self.agent.register_memory(pool)
        name = self.agent.add_remote_agent(info.metadata)
        mine = np.array([[pool.data_ptr(), size, 0, size, PAGES]], dtype=np.uint64)
        theirs = np.array([[info.base, size, 0, size, PAGES]], dtype=np.uint64)
        self.local = self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", mine, "DRAM")
        self.remote = self.agent.prep_xfer_dlist(name, theirs, "DRAM")

    def write(self, src: list[int], dst: list[int]) -> float:
        start = time.perf_counter()
        i, j = np.array(src, dtype=np.int32), np.array(dst, dtype=np.int32)
        handle = self.agent.make_prepped_xfer("WRITE", self.local, i, self.remote, j)
        state = self.agent.transfer(handle)
        while state == "PROC":
            self.agent.get_new_notifs()
            state = self.agent.check_xfer_state(handle)
        took = time.perf_counter() - start
        handle.release()
        return took


def measure(itemsize: int, rounds: int) -> dict[str, float]:
    pipe, other = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=receive, args=(other, itemsize), daemon=True)
    child.start()
    info = pipe.recv()
    got = threading.Event()

    inside: list[float] = []

    def report(item: c.Report) -> None:
        if isinstance(item, c.Posted):
            inside.extend([item.seconds] * (item.seq >= 0))
        if not isinstance(item, c.Beat):
            got.set()

    agent, pool = make_agent("src", itemsize, report)
    size = page_bytes(shape(itemsize), (0, 3))
    for peer, factor in (("dst", 1), ("halves", 2)):
        got.clear()
        agent.submit(
            c.AddPeer(
                peer=peer,
                tp=1,
                metadata=[info.metadata],
                bases=[info.base],
                devices=[0],
                heads=[(0, 3)],
                pages=PAGES * factor,
                page_size=16 // factor,
            )
        )
        got.wait(20)
    raw, order = Raw(pool, info, size), torch.Generator().manual_seed(1)
    times: dict[str, list[float]] = {"agent": [], "raw": [], "halves": []}
    count = TOKENS // 16
    for index in range(rounds + 10):
        src = torch.randperm(PAGES - 1, generator=order)[:count].tolist()
        dst = torch.randperm(PAGES - 1, generator=order)[:count].tolist()
        took = {"raw": raw.write(src, dst)}
        got.clear()
        start = time.perf_counter()
        agent.submit(c.Post(room=index, seq=index, peer="dst", src=src, dst=dst))
        got.wait(20)
        took["agent"] = time.perf_counter() - start
        src, dst = units_of(src, 2), units_of(dst, 2)
        got.clear()
        start = time.perf_counter()
        agent.submit(c.Post(room=index, seq=-index, peer="halves", src=src, dst=dst))
        got.wait(20)
        took["halves"] = time.perf_counter() - start
        if index >= 10:
            for name, value in took.items():
                times[name].append(value)
    median = {name: statistics.median(values) for name, values in times.items()}
    pipe.send("idle")
    idle = pipe.recv()
    pipe.send("end")
    child.join()
    agent.stop()
    moved = size * count
    return {
        "bytes": moved,
        "agent_gb_s": round(moved / median["agent"] / 1e9, 2),
        "raw_gb_s": round(moved / median["raw"] / 1e9, 2),
        "agent_to_raw": round(median["raw"] / median["agent"], 3),
        "agent_thread_to_raw": round(median["raw"] / statistics.median(inside[10:]), 3),
        "agent_ms": round(median["agent"] * 1e3, 3),
        "halves_ms": round(median["halves"] * 1e3, 3),
        "idle_cpu_percent": round(idle * 100, 2),
    }


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(json.dumps({"float32": measure(4, rounds), "bfloat16": measure(2, rounds)}))


if __name__ == "__main__":
    main()
