"""The engine's transfer against a raw NIXL write of the same descriptors, in turn, into one target process.

Both writers sit in this process over pools of the same shape and send the same pages to the same places.
"Engine" is what a Post costs from its submission to its report, threads and all; "raw" is make_prepped_xfer,
transfer and a poll until it is done. "Verified" is the engine's with checksums of what was stored, and then
of as many pages on the receiver's behalf: what PD_KV_CHECKSUM=1 adds to a transfer.
"""

from __future__ import annotations

import logging
import queue
import random
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import torch
from nixl._api import nixl_agent, nixl_agent_config

from engine.transfer.agent import AgentThread
from engine.transfer.commands import (
    AddPeer,
    AgentInfo,
    Check,
    Checked,
    PeerAdded,
    PeerError,
    Post,
    Posted,
    PostError,
    Report,
)
from engine.transfer.layout import page_bytes
from tests.bench.procs import BenchError, Procs
from tests.bench.stats import show, spread, table
from tests.bench.transfer_target import PAGES, SHAPE, start_agent

PAGE = page_bytes(SHAPE, (0, SHAPE.kv_heads))
SIZES = (1, 32, 128)  # pages: 16, 512 and 2048 tokens
DEADLINE = 30.0
logging.getLogger("nixl").setLevel(logging.WARNING)  # its lines would stand in the table


class EngineWriter:
    """A transfer thread of the engine, linked to the target."""

    def __init__(self, target: AgentInfo) -> None:
        self._reports: queue.Queue[Report] = queue.Queue()
        self._thread, self.pool = start_agent("bench-source", self._reports.put)
        fill(self.pool)
        self._seq = 0
        self._thread.submit(
            AddPeer(
                peer="target",
                tp=1,
                metadata=[target.metadata],
                bases=[target.base],
                devices=[target.device],
                heads=[target.heads],
                pages=target.pages,
            )
        )
        self._wait(PeerAdded)

    @property
    def thread(self) -> AgentThread:
        return self._thread

    def _wait(self, kind: type) -> None:
        until = time.monotonic() + DEADLINE
        while True:
            try:
                report = self._reports.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise BenchError(f"the engine's transfer reported no {kind.__name__}.") from None
            if isinstance(report, PeerError | PostError):
                raise BenchError(f"the engine's transfer failed: {report.error}")
            if isinstance(report, kind):
                return

    def write(self, src: list[int], dst: list[int], sums: bool = False) -> float:
        """Seconds from submission to report; with `sums` to that of the receiver's too."""
        self._seq += 1
        tokens = len(src) * SHAPE.page_size
        start = time.perf_counter()
        post = Post(
            room=1, seq=self._seq, peer="target", src=src, dst=dst, sums=src if sums else [], tokens=tokens
        )
        self._thread.submit(post)
        self._wait(Posted)
        if sums:
            self._thread.submit(Check(room=1, ticket=1, pages=dst, tokens=tokens))
            self._wait(Checked)
        return time.perf_counter() - start


class VerifiedWriter:
    """What PD_KV_CHECKSUM=1 makes of a transfer, both ends' sums on the engine's one transfer thread."""

    def __init__(self, engine: EngineWriter) -> None:
        self._engine = engine

    def write(self, src: list[int], dst: list[int]) -> float:
        return self._engine.write(src, dst, sums=True)


class RawWriter:
    """A bare NIXL agent over a pool of the same shape, with descriptor lists of all pages prepared."""

    def __init__(self, target: AgentInfo) -> None:
        self.pool = torch.empty(PAGES * PAGE, dtype=torch.uint8)
        fill(self.pool)
        self._nixl = nixl_agent("bench-raw", nixl_agent_config(enable_prog_thread=False))
        self._nixl.register_memory(self.pool)
        name = self._nixl.add_remote_agent(target.metadata)
        self._local = self._nixl.prep_xfer_dlist("NIXL_INIT_AGENT", self._list(self.pool.data_ptr()), "DRAM")
        self._remote = self._nixl.prep_xfer_dlist(name, self._list(target.base), target.memory)
        self.write([0], [0])

    @staticmethod
    def _list(base: int) -> np.ndarray:
        rows = [(base + page * PAGE, PAGE, 0) for page in range(PAGES)]
        return np.array(rows, dtype=np.uint64)

    def write(self, src: list[int], dst: list[int]) -> float:
        """Seconds from making the write to seeing it done."""
        return self._move("WRITE", src, dst)

    def fetch(self, there: list[int], here: list[int]) -> torch.Tensor:
        """What the target's pages hold, [pages, bytes], read into pages of this pool."""
        self._move("READ", here, there)
        return pages_of(self.pool, here)

    def _move(self, what: str, local: list[int], remote: list[int]) -> float:
        start = time.perf_counter()
        handle = self._nixl.make_prepped_xfer(
            what, self._local, np.array(local, np.int32), self._remote, np.array(remote, np.int32)
        )
        state = self._nixl.transfer(handle)
        while state == "PROC":
            if time.perf_counter() - start > DEADLINE:
                raise BenchError(f"a raw NIXL {what} did not complete within {DEADLINE:g} s.")
            state = self._nixl.check_xfer_state(handle)
        handle.release()
        if state != "DONE":
            raise BenchError(f"a raw NIXL {what} ended in {state}.")
        return time.perf_counter() - start


def fill(pool: torch.Tensor) -> None:
    """Random bytes: pages that nobody has written are all one page of zeros, which copies from the cache."""
    view = pool.view(torch.uint8).view(-1)
    view.copy_(torch.randint(0, 256, view.shape, dtype=torch.uint8))


def pages_of(pool: torch.Tensor, pages: list[int]) -> torch.Tensor:
    """A copy of these pages' bytes, [pages, bytes]."""
    return pool.view(torch.uint8).view(PAGES, PAGE)[pages].clone()


def prove(engine: EngineWriter, raw: RawWriter) -> None:
    """BenchError unless what each writes is what the target then holds; nothing is timed before."""
    here = list(range(32, 64))
    for name, writer in (("the engine", engine), ("raw NIXL", raw)):
        src, dst = list(range(32)), list(range(64, 96) if writer is raw else range(96, 128))
        writer.write(src, dst)
        if not torch.equal(raw.fetch(dst, here), pages_of(writer.pool, src)):
            raise BenchError(f"{name} wrote other bytes than it was given.")


Writer = EngineWriter | RawWriter | VerifiedWriter


def _alternate(writers: dict[str, Writer], pages: int, count: int) -> dict[str, list[float]]:
    """`count` writes of `pages` random pages each way, in turn, the order changing; seconds a write."""
    rng = random.Random(pages)
    times: dict[str, list[float]] = {name: [] for name in writers}
    for i in range(count + 3):
        src, dst = (rng.sample(range(PAGES - 1), pages) for _ in range(2))
        for name in writers if i % 2 else reversed(writers):
            seconds = writers[name].write(src, dst)
            if i >= 3:  # the first ones touch pages and warm the path
                times[name].append(seconds)
    return times


def run(count: int, logs: Path) -> tuple[str, dict[str, object]]:
    """`count` writes each way and size; returns the printed table and the JSON document."""
    info_file = logs / "transfer-target.info"
    info_file.unlink(missing_ok=True)
    with Procs(logs) as procs:
        argv = [sys.executable, "-m", "tests.bench.transfer_target", "--info", str(info_file)]
        procs.start("transfer-target", argv, {"OMP_NUM_THREADS": "1"})
        procs.wait("the transfer target", info_file.exists, 60)
        target = msgspec.msgpack.decode(info_file.read_bytes(), type=AgentInfo)
        engine = EngineWriter(target)
        try:
            raw = RawWriter(target)
            prove(engine, raw)
            writers: dict[str, Writer] = {
                "engine": engine,
                "raw nixl": raw,
                "verified": VerifiedWriter(engine),
            }
            found = {pages: _alternate(writers, pages, count) for pages in SIZES}
        finally:
            engine.thread.stop()
    return _report(found, count)


def _report(found: dict[int, dict[str, list[float]]], count: int) -> tuple[str, dict[str, object]]:
    rows, levels = [], []
    for pages, times in found.items():
        size = pages * PAGE
        rate = {name: [size / t / 1e9 for t in each] for name, each in times.items()}
        shares = [r / e for e, r in zip(times["engine"], times["raw nixl"], strict=True)]
        costs = [v / e - 1 for e, v in zip(times["engine"], times["verified"], strict=True)]
        rows.append(
            [
                f"{pages} pages, {size / 1e6:.1f} MB",
                *(show(times[n], 1e3, 3) for n in times),
                *(f"{spread(rate[n])['median']:.1f}" for n in rate),
                f"{spread(shares)['median']:.2f}",
                f"{100 * spread(costs)['median']:.0f} %",
            ]
        )
        levels.append(
            {
                "pages": pages,
                "bytes": size,
                "seconds": {n: spread(t) for n, t in times.items()},
                "gb_per_s": {n: spread(r) for n, r in rate.items()},
                "engine_over_raw": spread(shares),
                "checksum_cost": spread(costs),
            }
        )
    head = ["write", "engine ms", "raw ms", "verified ms"]
    head += ["engine GB/s", "raw GB/s", "verified GB/s", "engine/raw", "checksums add"]
    text = f"{count} writes each way in turn, random pages, one descriptor a page\n{table(head, rows)}"
    return text, {"levels": levels}
