"""Facts of the machine and of the software that a result is worth nothing without."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path

import psutil

LIBRARIES = ("torch", "nixl", "numpy", "uvicorn", "starlette", "msgspec")


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def facts() -> dict[str, object]:
    """CPU, memory, kernel, Python and library versions, and the load at the start."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "load_at_start": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def busy_share(own: list[int], seconds: float = 2.0) -> float:
    """Cores kept busy by processes other than `own` pids and their children, over `seconds`."""
    mine = {os.getpid(), *own}
    for pid in own:
        try:
            mine |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        except psutil.NoSuchProcess:
            continue

    def used() -> dict[int, float]:
        found = {}
        for proc in psutil.process_iter(["pid", "cpu_times"]):
            times = proc.info["cpu_times"]
            if proc.info["pid"] not in mine and times is not None:
                found[proc.info["pid"]] = times.user + times.system
        return found

    before = used()
    time.sleep(seconds)
    after = used()
    return sum(max(0.0, after[pid] - before[pid]) for pid in after if pid in before) / seconds
