"""RDMA ports as ibv_devinfo, ibstat and show_gids print them; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import RdmaPort

_DEVICE = re.compile(r"^\s*(?:hca_id:\s*|CA ')(?P<name>[\w.-]+)")
_FIELD = re.compile(r"^\s+(?P<key>state|active_mtu|State|Physical state):\s*(?P<value>\w+)", re.MULTILINE)
_GID = re.compile(
    r"^\s+GID\[\s*(?P<index>\d+)\]:\s*(?P<gid>[0-9A-Fa-f:.]+)(?:,?\s*(?P<version>RoCE v\d|IB/RoCE v1))?"
)
_ROW = re.compile(
    r"^(?P<device>[\w.-]+)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>[0-9A-Fa-f:]{6,})"
    r"(?:\s+(?P<ipv4>\d+\.\d+\.\d+\.\d+))?\s+(?P<version>v\d)"
)


def rdma(text: str) -> list[RdmaPort]:
    """One for each device (its last port); GIDs as "index gid ipv4 version", what was shown of it."""
    by: dict[str, RdmaPort] = {}
    for device, change in _facts(text):
        old = by.get(device, RdmaPort(device))
        by[device] = RdmaPort(
            device,
            change.state or old.state,
            change.mtu if change.mtu is not None else old.mtu,
            (*old.gids, *change.gids),
        )
    return list(by.values())


def merged(ports: list[RdmaPort]) -> tuple[RdmaPort, ...]:
    """Several documents' ports, one for each device."""
    by: dict[str, RdmaPort] = {}
    for port in ports:
        old = by.get(port.device, RdmaPort(port.device))
        mtu = port.mtu if port.mtu is not None else old.mtu
        by[port.device] = RdmaPort(port.device, port.state or old.state, mtu, (*old.gids, *port.gids))
    return tuple(by.values())


def _facts(text: str) -> Iterator[tuple[str, RdmaPort]]:
    device = ""
    for line in text.splitlines():
        if head := _DEVICE.match(line):
            device = head["name"]
            yield device, RdmaPort(device)
        elif row := _ROW.match(line):
            gid = " ".join(filter(None, (row["index"], row["gid"], row["ipv4"], row["version"])))
            yield row["device"], RdmaPort(row["device"], gids=(gid,))
        elif device and (field := _FIELD.match(line)):
            if field["key"] == "active_mtu":
                mtu = int(field["value"]) if field["value"].isdigit() else None
                yield device, RdmaPort(device, mtu=mtu)
            elif field["key"] != "Physical state":
                yield device, RdmaPort(device, field["value"].removeprefix("PORT_").upper())
        elif device and (listed := _GID.match(line)):
            gid = " ".join(filter(None, (listed["index"], listed["gid"], listed["version"])))
            yield device, RdmaPort(device, gids=(gid,))
