"""Looks at one process of a host: `python3 - PID < hosttool.py` prints one JSON object.

Python >= 3.9 and nothing else: it runs on hosts where pdctl is not installed. `error` is a sentence when the
process cannot be read; `denied` is true when root could.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(8 << 20)


def words(data: bytes) -> list[str]:
    return [w.decode("utf-8", "surrogateescape") for w in data.split(b"\0")[:-1]]


def status(pid: int) -> dict[str, str]:
    lines = read(f"/proc/{pid}/status").decode("utf-8", "replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def policies(pid: int) -> list[str]:
    """Memory policies of its heap and stack, as the kernel names them; none where it cannot tell."""
    found = set()
    try:
        for line in read(f"/proc/{pid}/numa_maps").decode("utf-8", "replace").splitlines():
            fields = line.split()
            if "heap" in fields or "stack" in fields:
                found.add(fields[1])
    except OSError:
        pass
    return sorted(found)


def nodes() -> dict[str, str]:
    """Node number -> its CPUs, as /sys writes them."""
    base = "/sys/devices/system/node"
    listed = os.listdir(base) if os.path.isdir(base) else []
    numbers = [name[4:] for name in listed if name.startswith("node") and name[4:].isdigit()]
    return {n: read(f"{base}/node{n}/cpulist").decode().strip() for n in numbers}


def children(pid: int) -> list[Any]:
    """(pid, argv) of each process right below it."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            parent = read(f"/proc/{entry}/stat").rpartition(b")")[2].split()[1]
            if int(parent) == pid:
                found.append([int(entry), words(read(f"/proc/{entry}/cmdline"))])
        except (OSError, IndexError):
            continue
    return found


def look(pid: int) -> dict[str, Any]:
    return {
        "argv": words(read(f"/proc/{pid}/cmdline")),
        "env": words(read(f"/proc/{pid}/environ")),
        "cwd": os.readlink(f"/proc/{pid}/cwd"),
        "cpus": status(pid).get("Cpus_allowed_list", ""),
        "all_cpus": status(1).get("Cpus_allowed_list", ""),
        "policies": policies(pid),
        "nodes": nodes(),
        "children": children(pid),
        "contained": not os.path.samefile(f"/proc/{pid}/root", "/"),
    }


def main(argv: list[str]) -> None:
    pid = int(argv[0])
    try:
        answer = look(pid)
    except (FileNotFoundError, ProcessLookupError):
        answer = {"error": f"there is no process {pid}", "denied": False}
    except PermissionError:
        answer = {"error": f"process {pid} belongs to another user", "denied": True}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
