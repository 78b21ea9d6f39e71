"""TCP ports of a host: free, or who holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from pdctl.facts.missing import Missing

TAKEN = "taken"


@dataclass(frozen=True)
class Holder:
    """A listening process; `pid` is None when only root could see it. `service` is its systemd unit."""

    address: str
    user: str
    pid: int | None
    parents: tuple[int, ...] = ()
    command: str = ""
    service: str = ""

    def of(self, pids: Collection[int]) -> bool:
        """Whether it is one of these processes or runs below one of them."""
        return self.pid is not None and any(pid in pids for pid in (self.pid, *self.parents))

    @property
    def words(self) -> str:
        if self.pid is None:
            return f"a process of {self.user} that cannot be seen without root"
        unit = f", {self.service}" if self.service else ""
        return f"pid {self.pid} of {self.user} ({self.command}{unit})"


@dataclass(frozen=True)
class PortState:
    """`error` says why nothing could listen on it now: TAKEN, or what the system said; "" when it is free."""

    address: str
    port: int
    error: str
    holders: tuple[Holder, ...]

    @property
    def free(self) -> bool:
        return not self.error

    def strangers(self, pids: Collection[int]) -> tuple[Holder, ...]:
        """Those that hold it and belong to none of these processes; empty when it is free."""
        return () if self.free else tuple(h for h in self.holders if not h.of(pids))

    @property
    def words(self) -> str:
        if self.free:
            return "free"
        if self.error != TAKEN:
            return self.error
        held = "; ".join(h.words for h in self.holders)
        return f"held by {held or 'a process that cannot be seen'}"


def request(address: str, ports: Iterable[int]) -> dict[str, dict[str, Any]]:
    return {"ports": {"wanted": [[address, port] for port in ports]}}


def parse(rows: list[dict[str, Any]] | Missing) -> tuple[PortState, ...] | Missing:
    if isinstance(rows, Missing):
        return rows
    return tuple(port_state(row) for row in rows)


def port_state(row: dict[str, Any]) -> PortState:
    holders = tuple(
        Holder(
            address=h["address"],
            user=h["user"],
            pid=h["pid"],
            parents=tuple(h.get("parents", ())),
            command=h.get("command", ""),
            service=h.get("service", ""),
        )
        for h in row["holders"]
    )
    return PortState(row["address"], row["port"], row["error"], holders)
