"""What one engine, router or host left behind as text and numbers, whatever kind of server it is.

Beside the picture (picture.py), which is one server's answer about itself, these are its logs, metrics,
settings, files and exits. Everything is optional and plain; rules read nothing else of a foreign server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Event:
    """One line of a log that a sign knows. `at` is Unix seconds where the line or its neighbours say so.

    `order` is the line's number in its own log, `where` the document and line to open. `rank` is the tensor,
    pipeline or data parallel rank that wrote it ("TP3"), "" when it does not say.
    """

    sign: str
    party: str
    at: float | None
    order: int
    where: str
    line: str
    rank: str = ""
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """The line as evidence: who, what."""
        return f"{self.party}: {self.line}" if self.party else self.line


@dataclass(frozen=True)
class Reading:
    """Numbers of one moment under normal names (readings.NAMES); counters and gauges alike.

    `source` is metrics, log, json or hand. `rank` is "" for the server as a whole.
    """

    at: float | None
    source: str
    numbers: Mapping[str, float]
    rank: str = ""


@dataclass(frozen=True)
class Stack:
    """One thread of one process at one moment, innermost frame first."""

    process: str
    thread: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Traces:
    """`settings` are effective launch settings under normal names (settings.py), `environ` its variables.

    `former` are settings and variables of the last good start, when somebody kept them. `health` is how its
    own health endpoint answered: "ok", "refused", "timed out", "http 503", "" when it was not asked.
    `ended` is its exit code, negative or above 128 for a signal, None while it runs or when nobody knows.
    `files` holds what else was read of the process: limits, maps, status, as text.
    """

    kind: str = ""
    version: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, str] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    readings: tuple[Reading, ...] = ()
    stacks: tuple[Stack, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    health: str = ""
    ended: int | None = None
    restarts: int | None = None
    started_at: float | None = None
    last_transfer_at: float | None = None
    lines: int = 0

    def of(self, *signs: str) -> Iterator[Event]:
        """Its events of these signs, in the order of its log; "nixl." stands for the whole family."""
        names = {n for n in self._places for s in signs if n == s or (s.endswith(".") and n.startswith(s))}
        for place in sorted(place for name in names for place in self._places[name]):
            yield self.events[place]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Sign -> where its events stand in `events`: rules ask for some thousand signs of each log."""
        found: dict[str, list[int]] = {}
        for place, event in enumerate(self.events):
            found.setdefault(event.sign, []).append(place)
        return found

    def numbers(self, name: str, rank: str = "") -> list[tuple[float | None, float]]:
        """(at, value) of one number over time, oldest first."""
        return [(r.at, r.numbers[name]) for r in self.readings if r.rank == rank and name in r.numbers]

    def last(self, name: str, rank: str = "") -> float | None:
        values = self.numbers(name, rank)
        return values[-1][1] if values else None

    def moved(self, name: str, rank: str = "") -> float | None:
        """How far a number went from the first reading to the last; None with fewer than two."""
        values = self.numbers(name, rank)
        return values[-1][1] - values[0][1] if len(values) > 1 else None

    @property
    def ranks(self) -> tuple[str, ...]:
        """Ranks that have readings of their own, in order."""
        return tuple(sorted({r.rank for r in self.readings if r.rank}))


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment: percent, watts, MiB, None where it was not said. `state` is "" when usual."""

    index: int
    util: float | None = None
    memory_util: float | None = None
    power: float | None = None
    power_limit: float | None = None
    used_mib: float | None = None
    total_mib: float | None = None
    state: str = ""


@dataclass(frozen=True)
class GpuProcess:
    gpu: str
    pid: int
    name: str
    used_mib: float | None = None


@dataclass(frozen=True)
class Mount:
    """Bytes."""

    path: str
    total: int
    free: int


@dataclass(frozen=True)
class Socket:
    """A listening socket; pid None when it was not shown."""

    address: str
    port: int
    process: str = ""
    pid: int | None = None


@dataclass(frozen=True)
class Interface:
    """A network interface and its addresses."""

    name: str
    mtu: int
    up: bool
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class RdmaPort:
    """`mtu` is the active one, in bytes; `gids` are "index gid ipv4 version", what was shown of each."""

    device: str
    state: str = ""
    mtu: int | None = None
    gids: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProcessRow:
    """A process of the host as ps shows it; bytes, Unix seconds; `parent` 0 when it was not shown."""

    pid: int
    parent: int
    command: str
    rss: int | None = None
    started_at: float | None = None


@dataclass(frozen=True)
class HostTraces:
    """What a host's own tools said; `tools` are those that were asked.

    `numbers`: clock_offset (s), clock_synced (0, 1), cores, load1; memory_total, memory_free, memlock in
    bytes (-1 unlimited).
    """

    events: tuple[Event, ...] = ()
    gpus: tuple[GpuReading, ...] = ()
    gpu_processes: tuple[GpuProcess, ...] = ()
    mounts: tuple[Mount, ...] = ()
    sockets: tuple[Socket, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    tools: frozenset[str] = frozenset()
