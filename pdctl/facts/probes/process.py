"""Host tool: processes by pid, with what an operator needs to know of them."""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any

from pdctl.facts.probes.proc import (
    STATES,
    command_of,
    denied,
    family,
    process_table,
    read_bytes,
    read_text,
    started_at,
    stat_of,
)

_MAPPED = 4  # ranks of one engine load the same
STOPPED = "Tt"  # letters of processes that a signal or a tracer stopped
SECOND_LOOK = 1.0  # how long they are watched; a verdict is due within three seconds
_EVERY = 0.01
OURS = (
    *("PD_", "UCX_", "NCCL_", "OMP_", "SGLANG_", "VLLM_"),
    *("NIXL_", "MC_", "DYN_", "TRTLLM_", "CUDA_", "HSA_", "GLOO_"),
)
PROXY = re.compile(r"^(?:https?|all|no)_proxy$", re.IGNORECASE)  # they bend calls between engines
SECRET = re.compile(r"TOKEN(?!.*_FILE$)|SECRET|PASSWORD|API_KEY|CREDENTIAL", re.IGNORECASE)
OPTION = re.compile(r"(^|[-_])(token|secret|password|passwd|api[-_]?key|credentials?)$", re.IGNORECASE)


def veiled(name: str, value: str) -> str:
    """A value that may be shown: a secret's is a digest, so that two of them can still be compared."""
    if PROXY.match(name):
        return re.sub(r"//[^/@]*@", "//***@", value)
    if not SECRET.search(name):
        return value
    return "secret sha256:" + hashlib.sha256(value.encode()).hexdigest()[:12]


def environ_of(pid: int) -> dict[str, Any]:
    """Variables of engines and their libraries; {"missing": why} when the process is another user's."""
    path = f"/proc/{pid}/environ"
    raw = read_bytes(path)
    if path in denied:
        return {"missing": "the process belongs to another user"}
    pairs = [entry.partition("=") for entry in raw.decode("utf-8", "replace").split("\0")]
    return {"values": {k: veiled(k, v) for k, _, v in pairs if k.startswith(OURS) or PROXY.match(k)}}


def argv_of(pid: int) -> list[str]:
    """Its command line without secrets: the words behind options that are named like one."""
    words = read_text(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    found: list[str] = []
    for at, word in enumerate(words):
        option, equals, _ = word.partition("=")
        before = words[at - 1] if at else ""
        if option.startswith("-") and equals and OPTION.search(option):
            found.append(f"{option}=***")
        elif before.startswith("-") and "=" not in before and OPTION.search(before):
            found.append("***")
        else:
            found.append(word)
    return found


def limit_of(pid: int, name: str) -> list[int]:
    """Soft and hard limit in bytes, -1 for unlimited; empty when they cannot be read."""
    for line in read_text(f"/proc/{pid}/limits").splitlines():
        if line.startswith(name):
            return [-1 if word == "unlimited" else int(word) for word in line[len(name) :].split()[:2]]
    return []


def _allowed(pid: int) -> dict[str, str]:
    """The CPUs and memory nodes it may use, as the kernel lists them ("0-7,16")."""
    found = {}
    for line in read_text(f"/proc/{pid}/status").splitlines():
        key, _, value = line.partition(":")
        if key in ("Cpus_allowed_list", "Mems_allowed_list"):
            found[key.split("_")[0].lower()] = value.strip()
    return found


_LIBRARIES = re.compile(r"/\S*lib(?:uc[pts]|nixl|nccl|ibverbs|mlx5|cuda|plugin_|mooncake)\S*")


def libraries_of(pids: list[int]) -> list[str]:
    """Paths of the transfer and GPU libraries that these processes have loaded."""
    found: dict[str, None] = {}
    for pid in pids[:_MAPPED]:
        found |= dict.fromkeys(_LIBRARIES.findall(read_text(f"/proc/{pid}/maps")))
    return sorted(found)


def one_process(pid: int, table: dict[int, dict[str, Any]]) -> dict[str, Any]:
    stat = table.get(pid)
    if stat is None:
        return {"missing": f"process {pid} is gone"}
    if stat["state"] == "Z":
        return {"missing": f"process {pid} has ended and was not collected"}
    children = [
        {"pid": child, "status": STATES.get(table[child]["state"], "?"), "command": command_of(child)}
        for child in family(pid, table)[1:]
    ]
    return {
        "status": STATES.get(stat["state"], "?"),
        "started_at": started_at(stat["start"]),
        "argv": argv_of(pid),
        "environ": environ_of(pid),
        "memlock": limit_of(pid, "Max locked memory"),
        "children": children,
        "limits": read_text(f"/proc/{pid}/limits"),
        "libraries": libraries_of(family(pid, table)),
        **_allowed(pid),
    }


def probe_processes(pids: list[int]) -> dict[str, Any]:
    """Pid -> facts, or {"missing": why}. Where something is stopped, it takes up to SECOND_LOOK longer."""
    table = process_table()
    rows = {str(pid): one_process(pid, table) for pid in pids}
    families = {pid: family(pid, table) for pid in pids}
    ran = went_on({p: table[p] for each in families.values() for p in each if table[p]["state"] in STOPPED})
    for pid in pids:
        if mine := sorted(ran.intersection(families[pid])):
            rows[str(pid)]["ran"] = mine
    return rows


def went_on(stopped: dict[int, dict[str, Any]]) -> set[int]:
    """Those of the stopped processes (pid -> stat_of) that run again, or have run, within SECOND_LOOK; one
    that was killed meanwhile did not.
    """
    ran: set[int] = set()
    end = time.monotonic() + SECOND_LOOK
    while ran != stopped.keys() and time.monotonic() < end:
        time.sleep(_EVERY)
        for pid in stopped.keys() - ran:
            now = stat_of(pid)
            same = now is not None and now["start"] == stopped[pid]["start"] and not now["ending"]
            if same and (now["state"] not in STOPPED or now["spent"] > stopped[pid]["spent"]):
                ran.add(pid)
    return ran
