"""Facts of the machine and of the software that a result is worth nothing without."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path

import psutil
import torch

LIBRARIES = ("torch", "nixl", "numpy", "uvicorn", "starlette", "msgspec")


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def fast_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 by itself.

    Elsewhere torch emulates it, ten times slower than float32, and neither side is measured.
    """
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def facts() -> dict[str, object]:
    """CPU, memory, kernel, Python and library versions, and the load at the start."""
    return {
        "cpu": _cpu_model(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "fast_bfloat16": fast_bfloat16(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "load_at_start": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _used(pids: list[int]) -> float:
    """CPU seconds used so far by these processes and their children."""
    total = 0.0
    for pid in pids:
        try:
            root = psutil.Process(pid)
            for proc in (root, *root.children(recursive=True)):
                times = proc.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _busy() -> float:
    """CPU seconds that the machine was busy with anything so far."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


class Meter:
    """Cores kept busy between construction and `read`, by each group of pids and by everything else."""

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self._start, self._busy = time.monotonic(), _busy()
        self._used = self._now()

    def _now(self) -> dict[str, float]:
        used = {name: _used(pids) for name, pids in self._groups.items()}
        return {**used, "client": time.process_time()}

    def read(self) -> dict[str, float]:
        seconds = time.monotonic() - self._start
        shares = {n: max(0.0, u - self._used[n]) / seconds for n, u in self._now().items()}
        others = (_busy() - self._busy) / seconds - sum(shares.values())
        return {name: round(share, 2) for name, share in {**shares, "others": max(0.0, others)}.items()}
