"""NUMA nodes, network interfaces and RDMA devices of a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pdctl.facts.missing import Missing


@dataclass(frozen=True)
class Node:
    """`cpus` are the numbers of its CPUs; `memory` is bytes."""

    id: int
    cpus: frozenset[int]
    memory: int


@dataclass(frozen=True)
class Numa:
    """`cpus` are those that a login may use; `gpus` is place on the bus -> node."""

    nodes: tuple[Node, ...]
    cpus: frozenset[int]
    gpus: dict[str, int]

    def node(self, id: int) -> Node | None:
        return next((n for n in self.nodes if n.id == id), None)

    def near(self, pci: str) -> int | None:
        """A GPU's node. nvidia-smi writes its place with a domain of eight digits, the kernel with four."""
        return self.gpus.get(pci.lower()[-12:])


@dataclass(frozen=True)
class Interface:
    """`speed` is Mbit/s where the driver says it."""

    name: str
    up: bool
    mtu: int
    speed: int | None
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Rdma:
    """`device` is written as UCX_NET_DEVICES takes it (mlx5_0:1); `node` is the NUMA node it is near."""

    device: str
    state: str
    link: str
    rate: str
    node: int | None

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


def cpu_list(text: str) -> frozenset[int]:
    """The kernel's "0-3,8" as numbers."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def numa(row: dict[str, Any] | Missing) -> Numa | Missing:
    if isinstance(row, Missing):
        return row
    nodes = tuple(Node(n["id"], cpu_list(n["cpus"]), n["memory"]) for n in row["nodes"])
    return Numa(nodes, frozenset(row["cpus"]), row["gpus"])


def interfaces(rows: list[dict[str, Any]] | Missing) -> tuple[Interface, ...] | Missing:
    if isinstance(rows, Missing):
        return rows
    return tuple(Interface(r["name"], r["up"], r["mtu"], r["speed"], tuple(r["addresses"])) for r in rows)


def rdma(rows: list[dict[str, Any]] | Missing) -> tuple[Rdma, ...] | Missing:
    return rows if isinstance(rows, Missing) else tuple(Rdma(**r) for r in rows)


def carrying(interfaces: Iterable[Interface], addresses: Iterable[str]) -> Interface | None:
    """The interface that has one of these addresses."""
    wanted = set(addresses)
    return next((i for i in interfaces if wanted & set(i.addresses)), None)
