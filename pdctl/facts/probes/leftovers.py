"""Host tool: what a process tree owns while it lives, and what of that is still there after its stop."""

from __future__ import annotations

import os
from typing import Any

from pdctl.facts.probes.gpu import gpu_holders
from pdctl.facts.probes.ports import probe_ports
from pdctl.facts.probes.proc import family, process_table, read_text, stat_of


def _shared(pid: int) -> set[str]:
    """Files of /dev/shm that it has mapped and that have a name still."""
    lines = read_text(f"/proc/{pid}/maps").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
    return {path for path in paths if not path.endswith("(deleted)")}


def probe_footprint(pids: list[int]) -> dict[str, Any]:
    """Pid -> {processes: [[pid, start]], shm: [path], gpus: {uuid: MiB}} of the tree under it.

    `gpus` is None where GPU memory cannot be observed.
    """
    table = process_table()
    held = gpu_holders() if pids else {}
    found: dict[str, Any] = {}
    for root in pids:
        tree = family(root, table)
        gpus: Any = None if held is None else {}
        for app in held or []:
            if app["pid"] in tree:
                gpus[app["gpu"]] = gpus.get(app["gpu"], 0) + app["memory_mib"]
        found[str(root)] = {
            "processes": [[pid, table[pid]["start"]] for pid in tree],
            "shm": sorted(set().union(*(_shared(pid) for pid in tree))),
            "gpus": gpus,
        }
    return found


def probe_left(units: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Name -> {processes, ports, shm, gpus} still there of a footprint that was taken before.

    A unit is {processes, shm, address, ports}. `ports` come as probe_ports tells them, taken ones only.
    `gpus` are the processes that still hold GPU memory, None where that cannot be observed.
    """
    held = gpu_holders()
    return {name: _left(unit, held) for name, unit in units.items()}


def _left(unit: dict[str, Any], held: Any) -> dict[str, Any]:
    alive = []
    for pid, start in unit["processes"]:
        stat = stat_of(pid)
        if stat is not None and stat["start"] == start and stat["state"] not in "ZX":
            alive.append(pid)
    taken = [row for row in probe_ports([[unit["address"], p] for p in unit["ports"]]) if row["error"]]
    mine = {pid for pid, _ in unit["processes"]}
    return {
        "processes": alive,
        "ports": taken,
        "shm": [path for path in unit["shm"] if os.path.exists(path)],
        "gpus": None if held is None else sorted(app["pid"] for app in held if app["pid"] in mine),
    }
