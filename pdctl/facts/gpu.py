"""The GPUs of a host and who holds their memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pdctl.facts.missing import Missing

ABSENT = "there is no nvidia-smi"


@dataclass(frozen=True)
class Gpu:
    """`pci` is its place on the bus as nvidia-smi writes it; sizes are MiB."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int
    pci: str


@dataclass(frozen=True)
class GpuHolder:
    """A process with memory on a GPU; its command is "" when it lives in another pid namespace."""

    pid: int
    gpu: str
    memory_mib: int
    parents: tuple[int, ...]
    command: str

    def of(self, pids: Collection[int]) -> bool:
        return any(pid in pids for pid in (self.pid, *self.parents))

    @property
    def words(self) -> str:
        return f"pid {self.pid} ({self.command or 'not visible here'}) with {self.memory_mib} MiB"


@dataclass(frozen=True)
class Gpus:
    driver: str
    gpus: tuple[Gpu, ...]
    holders: tuple[GpuHolder, ...]

    def holders_of(self, index: int) -> tuple[GpuHolder, ...]:
        uuids = {g.uuid for g in self.gpus if g.index == index}
        return tuple(h for h in self.holders if h.gpu in uuids)


def parse(row: dict[str, Any] | Missing) -> Gpus | Missing:
    if isinstance(row, Missing):
        return row
    if "missing" in row:
        return Missing(row["missing"])
    holders = [
        GpuHolder(h["pid"], h["gpu"], h["memory_mib"], tuple(h["parents"]), h["command"])
        for h in row["holders"]
    ]
    return Gpus(row["driver"], tuple(Gpu(**g) for g in row["gpus"]), tuple(holders))
