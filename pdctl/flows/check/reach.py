"""Preflight of the ways between hosts: every address tried from where it will be used.

On ports that nobody listens on yet the host itself listens for a moment, with a nonce, so that an address
that leads elsewhere (127.0.0.1, another machine's) is not taken for the right one. Never on the port of a
unit that may start meanwhile: it would find its port taken.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pdctl.errors import PdctlError
from pdctl.facts import ask, reach
from pdctl.facts.missing import Missing, known
from pdctl.facts.reach import Reached
from pdctl.fleet.model import Engine, Fleet
from pdctl.flows.asking import ask_host
from pdctl.flows.check.hosts import HostState
from pdctl.flows.context import Context
from pdctl.remote.fanout import begin, fan_out

# A connect is given up after the first; ears wait for late visitors until the second, seconds.
CONNECT, EAR = 4.0, 8.0
# IPv4 and UDP headers, IPv6 and UDP headers; the largest UDP payload.
HEAD4, HEAD6, UDP_MAX = 28, 48, 65507


@dataclass(frozen=True)
class Way:
    """`source` must reach `port` of `engine`."""

    source: str
    engine: Engine
    port: int

    @property
    def key(self) -> str:
        return reach.key(self.engine.address, self.port)


@dataclass
class Ear:
    """What one host listens on while the others try: TCP ports, and one port of UDP for packet sizes."""

    host: str
    address: str
    nonce: str
    ports: list[int] = field(default_factory=list)
    udp: int | None = None
    visitors: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Ways:
    """`tried` has what each source found, `ears` who listened; (source, target host) -> path between them."""

    tried: Mapping[str, dict[str, Reached] | Missing]
    ears: Mapping[str, Ear]

    def of(self, source: str, key: str) -> Reached | Missing:
        found = self.tried.get(source, Missing(f"{source} was not asked"))
        if isinstance(found, Missing):
            return found
        return found.get(key, Missing("it was not tried"))

    def path(self, source: str, target: str) -> Reached | Missing:
        ear = self.ears.get(target)
        if ear is None or ear.udp is None:
            return Missing(f"no port of {target} is free to listen on")
        return self.of(source, reach.key(ear.address, ear.udp))


def ways(fleet: Fleet, states: Mapping[str, HostState]) -> list[Way]:
    """Decodes dial prefills, the router reaches every engine; between hosts that were reached only."""
    found = [Way(d.host, p, p.bootstrap_port) for p, d in fleet.edges() if p.bootstrap_port is not None]
    if fleet.router.kind != "none":
        found += [Way(fleet.router.host, engine, engine.port) for engine in fleet.engines()]
    once = {(w.source, w.key): w for w in found}
    return [w for w in once.values() if w.source in states and w.engine.host in states]


def apart(one: HostState, other: HostState) -> bool:
    """Whether they are two machines."""
    if known(one.boot) and known(other.boot):
        return one.boot != other.boot
    return one.name != other.name


def walk(ctx: Context, states: Mapping[str, HostState], wanted: Sequence[Way], quiet: bool = True) -> Ways:
    """Listen where nobody does, and try every way at once. `quiet`: nobody else starts units now."""
    ears = _ears(states, wanted, quiet)
    listening: list[Future[Any]] = [begin(partial(_listen, ctx, ear)) for ear in ears.values()]
    sources = list(dict.fromkeys(way.source for way in wanted))
    found = fan_out(sources, lambda source: _try(ctx, source, states, wanted, ears))
    tried = {s: Missing(r.message) if isinstance(r, PdctlError) else r for s, r in found.items()}
    for each in listening:
        each.result(EAR + ask.DEADLINE)
    return Ways(tried, ears)


def _ears(states: Mapping[str, HostState], wanted: Sequence[Way], quiet: bool) -> dict[str, Ear]:
    ears: dict[str, Ear] = {}
    for way in wanted:
        target = states[way.engine.host]
        ear = ears.setdefault(
            target.name, Ear(target.name, target.host.address, secrets.token_hex(8), [*target.spare[:1]])
        )
        ear.udp = target.spare[0] if target.spare else None
        ear.visitors.add(way.source)
        if quiet and way.port not in ear.ports and _idle(target, way.engine.name) and _free(target, way.port):
            ear.ports.append(way.port)
    return {host: ear for host, ear in ears.items() if ear.ports}


def _idle(state: HostState, unit: str) -> bool:
    """Whether its supervisor leaves it alone."""
    found = state.facts[unit].unit
    return known(found) and found.state in ("absent", "stopped", "failed")


def _free(state: HostState, port: int) -> bool:
    return known(state.ports) and any(p.port == port and p.free for p in state.ports)


def _listen(ctx: Context, ear: Ear) -> None:
    """What cannot be listened on is seen from the other side, as a refusal."""
    host = ctx.fleet.hosts[ear.host]
    arguments = {
        "nonce": ear.nonce,
        "tcp": [[ear.address, port] for port in ear.ports],
        "udp": [[ear.address, ear.udp]] if ear.udp is not None else [],
        "seconds": EAR,
        "visits": len(ear.visitors),
    }
    try:
        ask.listen(ctx.transport(ear.host), host.tool_python, arguments, EAR + ask.DEADLINE)
    except PdctlError:
        return


def _try(
    ctx: Context,
    source: str,
    states: Mapping[str, HostState],
    wanted: Sequence[Way],
    ears: Mapping[str, Ear],
) -> dict[str, Reached] | Missing:
    targets: dict[str, dict[str, Any]] = {}
    goodbye = []
    for way in wanted:
        if way.source != source:
            continue
        ear = ears.get(way.engine.host)
        nonce = ear.nonce if ear is not None and way.port in ear.ports else ""
        targets[way.key] = {"address": way.engine.address, "port": way.port, "nonce": nonce}
        if ear is None:
            continue
        goodbye.append([ear.address, ear.ports])
        if ear.udp is not None and apart(states[source], states[ear.host]):
            sizes = [_payload(states[source], ear.address), _payload(states[ear.host], ear.address)]
            row = {"address": ear.address, "port": ear.udp, "nonce": ear.nonce, "path": sizes}
            targets[reach.key(ear.address, ear.udp)] = row
    once = [bye for n, bye in enumerate(goodbye) if bye not in goodbye[:n]]
    request = {"reach": {"targets": list(targets.values()), "goodbye": once, "seconds": CONNECT}}
    return reach.parse(ask_host(ctx, source, request).of("reach"))


def _payload(state: HostState, address: str) -> int:
    """The largest UDP payload that its interface carries in one piece."""
    interface = state.interface
    mtu = interface.mtu if interface is not None else 1500
    return min(mtu - (HEAD6 if ":" in address else HEAD4), UDP_MAX)
