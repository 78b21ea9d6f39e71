"""Host tool: NUMA nodes, network interfaces with their addresses and MTU, and RDMA devices."""

from __future__ import annotations

import array
import fcntl
import glob
import os
import socket
import struct
from typing import Any

from pdctl.facts.probes.proc import read_line, read_text

SIOCGIFCONF = 0x8912
SIOCGIFFLAGS = 0x8913
SIOCGIFMTU = 0x8921
IFREQ = 40
IFF_UP, IFF_RUNNING = 0x1, 0x40
NVIDIA = "0x10de"


def _place(device: str) -> Any:
    """The NUMA node of a device in sysfs, None where it has none."""
    node = read_line(f"{device}/numa_node")
    return int(node) if node.isdigit() else None


def probe_numa() -> dict[str, Any]:
    """{nodes: [{id, cpus, memory}], cpus: those this login may use, gpus: {place on the bus: node}}."""
    nodes = []
    for path in sorted(glob.glob("/sys/devices/system/node/node[0-9]*")):
        memory = 0
        for line in read_text(f"{path}/meminfo").splitlines():
            if "MemTotal:" in line:
                memory = int(line.split()[-2]) * 1024
        node = int(os.path.basename(path)[4:])
        nodes.append({"id": node, "cpus": read_line(f"{path}/cpulist"), "memory": memory})
    nvidia = [d for d in glob.glob("/sys/bus/pci/devices/*") if read_line(f"{d}/vendor") == NVIDIA]
    places = {os.path.basename(d): node for d in nvidia if (node := _place(d)) is not None}
    return {"nodes": nodes, "cpus": sorted(os.sched_getaffinity(0)), "gpus": places}


def _addresses() -> dict[str, list[str]]:
    """Interface -> its IPv4 and IPv6 addresses."""
    found: dict[str, list[str]] = {}
    room = array.array("B", bytes(256 * IFREQ))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("iL", len(room), room.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(probe.fileno(), SIOCGIFCONF, asked))[0]
    raw = room.tobytes()
    for at in range(0, used, IFREQ):
        name = raw[at : at + 16].split(b"\0", 1)[0].decode().partition(":")[0]
        found.setdefault(name, []).append(socket.inet_ntoa(raw[at + 20 : at + 24]))
    for line in read_text("/proc/net/if_inet6").splitlines():
        digits, *_, name = line.split()
        found.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def _ask(probe: socket.socket, name: str, request: int) -> int:
    """An integer of an interface: its MTU or its flags. 0 when it is gone."""
    try:
        answer = fcntl.ioctl(probe.fileno(), request, struct.pack("16si20x", name.encode(), 0))
    except OSError:
        return 0
    return int(struct.unpack("16si20x", answer)[1])


def probe_interfaces() -> list[dict[str, Any]]:
    """[{name, up, mtu, speed (Mbit/s or None), addresses}]."""
    addresses = _addresses()
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            speed = read_line(f"/sys/class/net/{name}/speed")
            flags = _ask(probe, name, SIOCGIFFLAGS) & 0xFFFF
            found.append(
                {
                    "name": name,
                    "up": bool(flags & IFF_UP) and bool(flags & IFF_RUNNING),
                    "mtu": _ask(probe, name, SIOCGIFMTU),
                    "speed": int(speed) if speed.isdigit() and int(speed) > 0 else None,
                    "addresses": addresses.get(name, []),
                }
            )
    return found


def probe_resolve(names: list[str]) -> dict[str, list[str]]:
    """Name -> the addresses it has as this host resolves it; empty when it has none."""
    found = {}
    for name in names:
        try:
            rows = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
        except OSError:
            rows = []
        found[name] = list(dict.fromkeys(str(row[4][0]) for row in rows))
    return found


def probe_rdma() -> list[dict[str, Any]]:
    """[{device ("mlx5_0:1", as UCX names it), state, link, rate, node}]."""
    found = []
    for port in sorted(glob.glob("/sys/class/infiniband/*/ports/*")):
        device = port.split("/")[-3]
        found.append(
            {
                "device": f"{device}:{os.path.basename(port)}",
                "state": read_line(f"{port}/state").partition(": ")[2],
                "link": read_line(f"{port}/link_layer"),
                "rate": read_line(f"{port}/rate"),
                "node": _place(f"/sys/class/infiniband/{device}/device"),
            }
        )
    return found
