"""What a stopped engine could leave behind on its host: processes, ports, shared memory, GPU memory.

The footprint is taken while it lives, the leftovers after its stop; only what was seen before can be
shown gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pdctl.facts.missing import Missing
from pdctl.facts.ports import port_state


@dataclass(frozen=True)
class Footprint:
    """`processes` are (pid, start in ticks since boot), so that a reused pid is not mistaken; `shm` are files
    of /dev/shm; `gpus` is GPU -> MiB, None where GPU memory cannot be observed.
    """

    processes: tuple[tuple[int, int], ...] = ()
    shm: tuple[str, ...] = ()
    gpus: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Stopped:
    """A unit that was stopped: where it listened, and what it owned before."""

    name: str
    address: str
    ports: tuple[int, ...]
    footprint: Footprint


def footprint_request(pids: Sequence[int]) -> dict[str, dict[str, Any]]:
    return {"footprint": {"pids": list(pids)}}


def parse_footprint(pid: int, rows: dict[str, Any] | Missing) -> Footprint:
    """Empty when it was gone already, or nothing could be read of it."""
    row = None if isinstance(rows, Missing) else rows.get(str(pid))
    if row is None:
        return Footprint()
    return Footprint(tuple((p, s) for p, s in row["processes"]), tuple(row["shm"]), row["gpus"])


def left_request(units: Sequence[Stopped]) -> dict[str, dict[str, Any]]:
    asked = {
        u.name: {
            "processes": [list(p) for p in u.footprint.processes],
            "shm": list(u.footprint.shm),
            "address": u.address,
            "ports": list(u.ports),
        }
        for u in units
    }
    return {"left": {"units": asked}}


def first_left(row: dict[str, Any]) -> str:
    """The first thing of one unit that is still there, as words; "" when everything seen before is gone."""
    for pid in row["processes"]:
        return f"process {pid} of the old life"
    for taken in row["ports"]:
        state = port_state(taken)
        return f"port {state.port}, {state.words}"
    for path in row["shm"]:
        return f"shared memory {path}"
    for pid in row["gpus"] or ():
        return f"GPU memory, held by pid {pid}"
    return ""


def proof(stopped: Stopped, device: str | None) -> str:
    """One sentence on what was shown free, and what could not be observed."""
    print_ = stopped.footprint
    shm = f"{len(print_.shm)} shared-memory files gone" if print_.shm else "it had no shared-memory files"
    listed = ", ".join(map(str, stopped.ports))
    gone = f"{stopped.name}: {len(print_.processes)} processes gone, ports {listed} free, {shm}"
    return f"{gone}, {_gpu(print_, device)}"


def _gpu(before: Footprint, device: str | None) -> str:
    if before.gpus:
        return f"{sum(before.gpus.values())} MiB on {len(before.gpus)} GPUs free"
    if device == "cuda" and before.gpus is None:
        return "GPU memory not observable"
    return "it used no GPU"
