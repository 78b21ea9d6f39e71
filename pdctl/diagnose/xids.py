"""Xids: the numbers by which NVIDIA's kernel driver names what happened to a GPU; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.adapters.traces import Event

# From NVIDIA's public table of Xid errors.
NVLINK = frozenset({74, 137, *range(144, 151), 155, 156, 158})
LOST = frozenset({79})
SYSTEM = frozenset({62, 109, 110, 119, 120, 136, 143, 151})
MEMORY = frozenset({48, 63, 64, 92, 94, 95, 140, 157, 160, 161})
APPLICATION = frozenset({8, 13, 31, 32, 37, 43, 44, 45, 66, 68, 69, 80, 96, 97})
RECOVERY = 154
NAMES = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive channel removal",
    48: "double bit ECC error",
    62: "internal micro-controller halt",
    63: "row remapping recorded",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP error",
    137: "NVLink fault of a peer's access",
    140: "ECC error that was not recovered",
    145: "NVLink RLW error",
    149: "NVLink NETIR error",
    154: "GPU recovery action changed",
}


_ECHO = re.compile(r"caused by previous Xid (?P<xid>\d+)")


@dataclass(frozen=True)
class Xid:
    number: int
    device: str
    event: Event

    @property
    def told(self) -> str:
        name = NAMES.get(self.number, "")
        return f"Xid {self.number}{f' ({name})' if name else ''}"


def xids(events: Iterable[Event]) -> list[Xid]:
    """Of kernel and engine lines. A channel that died "caused by previous Xid N" is an echo of N."""
    found = []
    for event in events:
        if event.sign == "gpu.xid":
            echo = _ECHO.search(event.line)
            number = echo["xid"] if echo else event.values["xid"]
            found.append(Xid(int(number), event.values.get("device", ""), event))
    return found


def of(found: Iterable[Xid], numbers: Iterable[int]) -> list[Xid]:
    wanted = frozenset(numbers)
    return [x for x in found if x.number in wanted]
