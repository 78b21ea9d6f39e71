"""Host tool: NVIDIA GPUs, their driver and the processes that hold their memory, through nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from pdctl.facts.probes.proc import command_of, parents, process_table

GPU_FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "pci.bus_id")
APP_FIELDS = ("pid", "gpu_uuid", "used_memory")
# A driver in trouble lets nvidia-smi wait in the kernel, where it cannot be killed.
SMI_DEADLINE = 8.0


def smi(query: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows of one nvidia-smi query. OSError with what it said when it fails, TimeoutError when it hangs."""
    argv = ["nvidia-smi", f"--query-{query}={','.join(fields)}", "--format=csv,noheader,nounits"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = child.communicate(timeout=SMI_DEADLINE)
    except subprocess.TimeoutExpired:
        child.kill()
        raise TimeoutError(f"nvidia-smi did not answer in {SMI_DEADLINE:g} s") from None
    if child.returncode != 0:
        raise OSError(" ".join(said.split()) or f"nvidia-smi ended with exit code {child.returncode}")
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]
    return [dict(zip(fields, row)) for row in rows if len(row) == len(fields)]  # noqa: B905 - Python 3.9


def _number(text: str) -> int:
    """MiB; 0 for [N/A], which MIG slices and some drivers show."""
    return int(text) if text.isdigit() else 0


def gpu_holders() -> Any:
    """[{pid, gpu, memory_mib}] of every process with memory on a GPU; None when that cannot be observed."""
    if shutil.which("nvidia-smi") is None:
        return None
    try:
        rows = smi("compute-apps", APP_FIELDS)
    except OSError:
        return None
    return [
        {"pid": int(r["pid"]), "gpu": r["gpu_uuid"], "memory_mib": _number(r["used_memory"])}
        for r in rows
        if r["pid"].isdigit()
    ]


def probe_gpu() -> dict[str, Any]:
    """{driver, gpus, holders}; {"missing": why} without a working driver."""
    if shutil.which("nvidia-smi") is None:
        return {"missing": "there is no nvidia-smi"}
    try:
        gpus = smi("gpu", GPU_FIELDS)
    except OSError as error:
        return {"missing": str(error)}
    table = process_table()
    holders = gpu_holders() or []
    for holder in holders:
        holder["parents"] = list(parents(holder["pid"], table))
        holder["command"] = command_of(holder["pid"]) if holder["pid"] in table else ""
    return {
        "driver": gpus[0]["driver_version"] if gpus else "",
        "gpus": [
            {
                "index": int(g["index"]),
                "uuid": g["uuid"],
                "name": g["name"],
                "memory_mib": _number(g["memory.total"]),
                "used_mib": _number(g["memory.used"]),
                "pci": g["pci.bus_id"],
            }
            for g in gpus
            if g["index"].isdigit()
        ],
        "holders": holders,
    }
