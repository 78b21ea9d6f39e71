"""A host as preflight found it, healthy; tests change one thing and read the lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pdctl.facts.clock import Clock
from pdctl.facts.collect import UnitFacts
from pdctl.facts.gpu import Gpu, GpuHolder, Gpus
from pdctl.facts.machine import GIB, Memlock, Python, Room
from pdctl.facts.missing import Missing
from pdctl.facts.model import Model
from pdctl.facts.ports import PortState
from pdctl.facts.process import Process
from pdctl.facts.topology import Interface, Node, Numa, Rdma
from pdctl.facts.unit import Unit
from pdctl.fleet.model import Engine, Host
from pdctl.fleet.schema import EngineTable, HostTable
from pdctl.flows.check.hosts import HostState

PYTHON = "/srv/app/bin/python"
OFF = UnitFacts(Unit("x", "absent", True, None, None, 0, None), Missing("no process runs"))


def engine(name: str = "decode-0", host: str = "h2", **table: Any) -> Engine:
    role = name.partition("-")[0]
    given = {"role": role, "host": host, "port": 8001, **table}
    if role == "prefill":
        given.setdefault("bootstrap_port", 9001)
    return Engine(name, "a", host, f"10.0.0.{host[1:]}", "default", EngineTable(**given))


def running(pid: int = 100, cpus: str = "0-7", mems: str = "0", memlock: int | None = None) -> UnitFacts:
    unit = Unit("x", "running", True, pid, None, 0, 1.0, 1.0)
    return UnitFacts(unit, Process(pid, "sleeping", 1.0, {}, (), memlock, cpus, mems))


def two_nodes() -> Numa:
    low, high = frozenset(range(8)), frozenset(range(8, 16))
    nodes = (Node(0, low, 64 * GIB), Node(1, high, 64 * GIB))
    return Numa(nodes, low | high, {"0000:19:00.0": 0, "0000:b3:00.0": 1})


def two_gpus(*holders: GpuHolder) -> Gpus:
    cards = [
        Gpu(n, f"GPU-{n}", "NVIDIA H200", 143771, 0, f"00000000:{bus}:00.0")
        for n, bus in enumerate(("19", "B3"))
    ]
    return Gpus("550.90.07", tuple(cards), holders)


def state(*engines: Engine, host: str = "h2", table: dict[str, Any] | None = None, **over: Any) -> HostState:
    units = engines or (engine(host=host),)
    address = f"10.0.0.{host[1:]}"
    spec = {"transport": "ssh", "address": address, "python": PYTHON, "runtime": "existing", **(table or {})}
    dists = {"torch": "2.13.0", "nixl": "1.5.1", "msgspec": "0.18"}
    healthy: dict[str, Any] = {
        "host": Host(host, HostTable(**spec), "/opt/pdctl/t"),
        "units": units,
        "facts": {unit.name: OFF for unit in units},
        "launches": {},
        "clock": Clock(0.0, 0.01),
        "disk": Room("/opt/pdctl/t", 100 * GIB, 50 * GIB, 1 << 20),
        "shm": Room("/dev/shm", 8 * GIB, 8 * GIB, 1 << 20),
        "memlock": Memlock(8 << 20, None),
        "model": Model(True, "", 3),
        "boot": f"boot-{host}",
        "pythons": {PYTHON: Python(PYTHON, (3, 11, 2), dists)},
        "gpus": Missing("there is no nvidia-smi"),
        "numa": Numa((Node(0, frozenset(range(8)), 64 * GIB),), frozenset(range(8)), {}),
        "interfaces": (Interface("lo", True, 65536, None, ("127.0.0.1",)), eth(address)),
        "rdma": (),
        "ports": tuple(PortState(address, port, "", ()) for unit in units for port in unit.ports),
        "machine_units": True,
        "spare": (40001, 40002),
        "addresses": (address,),
        "env": {unit.name: {} for unit in units},
    }
    return HostState(**(healthy | over))


def eth(address: str, mtu: int = 1500, up: bool = True) -> Interface:
    return Interface("eth0", up, mtu, 10000, (address,))


def infiniband(state: str = "ACTIVE") -> Rdma:
    return Rdma("mlx5_0:1", state, "InfiniBand", "400 Gb/sec (4X NDR)", 0)


class Made:
    """The makers, for tests."""

    engine = staticmethod(engine)
    state = staticmethod(state)
    running = staticmethod(running)
    two_nodes = staticmethod(two_nodes)
    two_gpus = staticmethod(two_gpus)
    eth = staticmethod(eth)
    infiniband = staticmethod(infiniband)
    replace = staticmethod(replace)


@pytest.fixture
def made() -> type[Made]:
    return Made


@pytest.fixture
def only() -> Callable[..., Any]:
    """`only(lines, check)`: the one line of that check."""

    def find(lines: Any, check: str) -> Any:
        (found,) = [line for line in lines if line.check == check]
        return found

    return find
