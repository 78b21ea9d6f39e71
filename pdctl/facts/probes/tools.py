"""Host tool: what other tools of the host print, each within its own time; nothing is changed by asking."""

from __future__ import annotations

import shutil
import subprocess
import threading
from typing import Any

from pdctl.facts.probes.proc import denied

# What is asked of every host: name of the document -> argv.
TOOLS: dict[str, tuple[str, ...]] = {
    "nvidia-smi.csv": (
        "nvidia-smi",
        "--query-gpu=index,uuid,name,utilization.gpu,utilization.memory,power.draw,power.limit,memory.used,"
        "memory.total,pstate",
        "--format=csv",
    ),
    "nvidia-smi-apps.csv": (
        "nvidia-smi",
        "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
        "--format=csv",
    ),
    "dmesg.txt": ("dmesg", "--time-format", "iso", "--nopager"),
    "df.txt": ("df", "-P", "-B1", "-x", "overlay", "-x", "squashfs"),
    "ss.txt": ("ss", "-ltnp"),
    "ibv_devinfo.txt": ("ibv_devinfo",),
    "free.txt": ("free", "-b"),
    "ps.txt": ("ps", "-eo", "pid,ppid,stat,rss,lstart,args", "--sort=-rss"),
    "chronyc.txt": ("chronyc", "-n", "tracking"),
    "uptime.txt": ("uptime",),
    "lscpu.txt": ("lscpu",),
    "coredumpctl.txt": ("coredumpctl", "list", "--no-pager", "--since", "-1d"),
}
SECONDS = 2.0
KEPT = 200_000  # characters of an answer that are kept: its end
_PS_LINES = 400


def probe_tools(names: list[str]) -> dict[str, Any]:
    """Name -> {"text": …} or {"missing": why}; all of them at once, none for longer than its time."""
    found: dict[str, Any] = {}
    threads = [threading.Thread(target=_one, args=(name, found), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 0.5)
    return {name: found.get(name, {"missing": f"no answer in {SECONDS:g} s"}) for name in names}


def _one(name: str, found: dict[str, Any]) -> None:
    argv = TOOLS[name]
    if shutil.which(argv[0]) is None:
        found[name] = {"missing": f"there is no {argv[0]}"}
        return
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        found[name] = {"missing": f"{argv[0]} did not answer in {SECONDS:g} s"}
        return
    except OSError as error:
        found[name] = {"missing": f"{argv[0]}: {error.strerror}"}
        return
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode and not text.strip():
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [
            f"exit code {done.returncode}"
        ]
        found[name] = {"missing": f"{argv[0]}: {said[0]}"}
        if argv[0] == "dmesg":
            denied.append("/dev/kmsg")
        return
    if name == "ps.txt":
        text = "\n".join(text.splitlines()[:_PS_LINES])
    found[name] = {"text": text[-KEPT:]}
