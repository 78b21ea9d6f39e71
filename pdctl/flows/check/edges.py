"""Preflight of what two sides must have in common: versions, fingerprints, addresses, packet sizes; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from pdctl.adapters.fingerprint import differences
from pdctl.adapters.picture import Engine as Picture
from pdctl.facts.missing import Missing, known
from pdctl.facts.reach import REFUSED
from pdctl.fleet.model import Engine, Fleet
from pdctl.flows.check.hosts import HostState
from pdctl.flows.check.reach import Way, Ways, apart
from pdctl.flows.check.report import Line, fail, ok, skip, warn

# A difference in these keeps two agents apart; torch alone only makes two results of one computation.
STRICT = ("engine", "nixl")
SHOWN = (*STRICT, "torch")
States = Mapping[str, HostState]
Pictures = Mapping[str, Picture | Missing]


def loopback(address: str) -> bool:
    """Whether it leads every host to itself."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def pairs(fleet: Fleet, states: States) -> list[tuple[Engine, Engine]]:
    """Edges whose hosts were both reached."""
    return [(p, d) for p, d in fleet.edges() if p.host in states and d.host in states]


def agreement(fleet: Fleet, states: States, pictures: Pictures) -> Iterator[Line]:
    """Versions and fingerprints of both sides of every edge."""
    for prefill, decode in pairs(fleet, states):
        subject = f"{prefill.name} -> {decode.name}"
        one, other = (_versions(states, pictures, e) for e in (prefill, decode))
        yield _agree(subject, (prefill, decode), one, other)
        p, d = pictures[prefill.name], pictures[decode.name]
        wanted = "both sides see one KV page"
        if isinstance(p, Missing) or isinstance(d, Missing):
            silent = [why for e in (prefill, decode) if (why := _silent(states, pictures, e))]
            why = "; ".join(silent) or "both engines must run for it"
            yield skip(subject, "fingerprint", f"not known: {why}", wanted)
        elif lines := differences(prefill.name, p, decode.name, d):
            fix = "make them equal in the fleet file, then pdctl deploy"
            yield fail(subject, "fingerprint", "; ".join(lines), wanted, fix)
        else:
            yield ok(subject, "fingerprint", f"model {str(p.fingerprint.get('model'))[:19]} on both", wanted)


def _silent(states: States, pictures: Pictures, engine: Engine) -> str:
    """Why a running engine said nothing of itself; "" when it said it, does not run, or is about to end."""
    if engine.kind != "bundled":
        return f"{engine.name} is of kind {engine.kind}, which does not say it"
    picture, state = pictures[engine.name], states[engine.host]
    runs = state.pids(engine.name) and engine.name not in state.ending
    return picture.reason if isinstance(picture, Missing) and runs else ""


def _versions(states: States, pictures: Pictures, engine: Engine) -> dict[str, str] | Missing:
    """Of the running engine, else of what it will be started with."""
    if engine.kind != "bundled":
        return Missing(f"{engine.name} is of kind {engine.kind}, whose versions pdctl does not know")
    picture, state = pictures[engine.name], states[engine.host]
    if known(picture) and picture.versions:
        return picture.versions
    launch = state.launches.get(engine.name)
    existing = state.host.tool_python if state.host.runtime == "existing" else ""
    python = state.pythons.get(launch.python if launch is not None else existing)
    if python is None:
        return Missing(f"nothing is installed on {engine.host} yet")
    if isinstance(python, Missing):
        return python
    if all(name in python.lacking for name in SHOWN if name in python.dists):
        return Missing(f"{python.path} on {engine.host} has none of them")
    return {name: version for name, version in python.dists.items() if version is not None}


def _agree(
    subject: str,
    edge: tuple[Engine, Engine],
    one: dict[str, str] | Missing,
    other: dict[str, str] | Missing,
) -> Line:
    wanted = "the same engine, nixl and torch on both sides"
    if isinstance(one, Missing):
        return skip(subject, "versions", one, wanted)
    if isinstance(other, Missing):
        return skip(subject, "versions", other, wanted)
    differ = [n for n in SHOWN if n in one and n in other and one[n] != other[n]]
    prefill, decode = edge
    said = ", ".join(f"{n} {one[n]} on {prefill.host}, {other[n]} on {decode.host}" for n in differ)
    fix = "pdctl deploy, after the hosts' Python environments were made equal"
    if set(differ) & set(STRICT):
        return fail(subject, "versions", said, wanted, fix)
    if differ:
        return warn(subject, "versions", said, wanted, fix)
    shown = ", ".join(f"{n} {one[n]}" for n in SHOWN if n in one)
    return ok(subject, "versions", f"{shown} on both", wanted)


def addresses(states: States, ways: Ways, wanted: Sequence[Way]) -> Iterator[Line]:
    for way in wanted:
        yield _address(states, ways, way)


def _address(states: States, ways: Ways, way: Way) -> Line:
    source, target = states[way.source], states[way.engine.host]
    subject = f"{way.source} -> {way.engine.name}"
    wanted = f"{way.key} leads to {target.name}"
    if apart(source, target) and (found := _inward(source, target)):
        fix = f"set hosts.{target.name}.address to where the other hosts reach it, then pdctl deploy"
        return fail(subject, "address", found, wanted, fix)
    result = ways.of(way.source, way.key)
    if isinstance(result, Missing):
        return skip(subject, "address", result, wanted)
    listened = target.name in ways.ears and way.port in ways.ears[target.name].ports
    ending = way.engine.name in target.ending
    runs = bool(target.pids(way.engine.name)) and not ending
    if result.error == REFUSED and not listened and not runs:
        return skip(subject, "address", f"not known: {way.engine.name} does not listen now", wanted)
    if result.ok:
        by = "a listener of pdctl's" if listened else way.engine.name if runs else "whoever holds the port"
        return ok(
            subject, "address", f"{way.key} reached in {result.seconds * 1e3:.1f} ms, {by} answered", wanted
        )
    fix = f"look at {way.source}'s route (ip route get {way.engine.address}) and at firewalls on the way"
    if result.error == REFUSED:
        fix = (
            f"`pdctl logs {way.engine.name}`"
            if runs
            else f"a firewall on {target.name} rejects it: open {way.port}"
        )
    if ending and target.pids(way.engine.name):
        # What runs there may be what is broken, and the deploy its cure.
        return warn(subject, "address", f"{way.key}: {result.error}", wanted, fix)
    return fail(subject, "address", f"{way.key}: {result.error}", wanted, fix)


def _inward(source: HostState, target: HostState) -> str:
    """Why the target's address leads no other machine to it; "" when it may.

    A name that /etc/hosts gives a loopback address is the trap: Debian writes one for a host's own name.
    """
    address = target.host.address
    if loopback(address):
        return f"{address} leads {source.name} to itself"
    if target.addresses and all(map(loopback, target.addresses)):
        own = ", ".join(target.addresses)
        return f"{address} is {own} on {target.name} itself, so it listens where no other host comes"
    return ""


def advertised(fleet: Fleet, states: States, pictures: Pictures) -> Iterator[Line]:
    """What a running engine tells its peers to dial, where they are on other machines."""
    for prefill, decode in pairs(fleet, states):
        picture = pictures[prefill.name]
        if not apart(states[prefill.host], states[decode.host]):
            continue
        subject, wanted = f"{prefill.name} -> {decode.name}", f"an address that {decode.host} can reach"
        if isinstance(picture, Missing):
            if prefill.kind == "bundled" and (why := _silent(states, pictures, prefill)):
                yield skip(subject, "advertised", f"not known: {why}", wanted)
            continue
        for said in filter(None, (picture.bootstrap, picture.address)):
            if loopback(said.rpartition(":")[0]):
                found = f"{prefill.name} advertises {said}, which leads {decode.host} to itself"
                fix = f"set hosts.{prefill.host}.address, then pdctl deploy"
                yield fail(subject, "advertised", found, wanted, fix)
                break


def unnamed_ports(fleet: Fleet, states: States, ways: Ways) -> Iterator[Line]:
    """Where a firewall lets the fleet's own ports through and no other: KV goes over ports that UCX picks.

    Engines then link, and no transfer ever ends. A refusal is left out: the ear may have been late.
    """
    seen = set()
    for prefill, decode in pairs(fleet, states):
        one, other = states[decode.host], states[prefill.host]
        if prefill.bootstrap_port is None or (one.name, other.name) in seen:
            continue
        own = ways.of(one.name, Way(one.name, prefill, prefill.bootstrap_port).key)
        tried = ways.path(one.name, other.name)
        if not (known(own) and own.ok and known(tried)) or tried.error in ("", REFUSED):
            continue
        seen.add((one.name, other.name))
        found = f"port {prefill.bootstrap_port} of {other.name} is reached and another is not: {tried.error}"
        fix = (
            f"open every TCP port between {one.name} and {other.name}; or give UCX a range "
            "(UCX_TCP_PORT_RANGE=20000-20100 in the profile) and open that"
        )
        level = warn if _otherwise(one, decode) or _otherwise(other, prefill) else fail
        yield level(f"{one.name} -> {other.name}", "address", found, "the ports that UCX picks, any", fix)


def _otherwise(state: HostState, engine: Engine) -> bool:
    """Whether KV may have a way of its own there: RDMA, a range of ports, another engine's transfer."""
    ranged = state.env[engine.name].get("UCX_TCP_PORT_RANGE", "0") != "0"
    rdma = isinstance(state.rdma, Missing) or any(r.active for r in state.rdma)
    return engine.kind != "bundled" or ranged or rdma


def packets(fleet: Fleet, states: States, ways: Ways) -> Iterator[Line]:
    """Packet sizes between the machines of each edge."""
    seen = set()
    for prefill, decode in pairs(fleet, states):
        one, other = states[decode.host], states[prefill.host]
        if (one.name, other.name) not in seen and apart(one, other):
            seen.add((one.name, other.name))
            yield _packets(one, other, ways)


def _packets(one: HostState, other: HostState, ways: Ways) -> Line:
    subject = f"{one.name} <-> {other.name}"
    wanted = "one MTU at both ends and on the path"
    here, there = one.interface, other.interface
    if wrong := _inward(one, other) or _inward(other, one):
        return skip(subject, "mtu", f"not known: {wrong}", wanted)
    if here is None or there is None:
        lost = one if here is None else other
        return skip(subject, "mtu", f"not known: no interface of {lost.name} has {lost.host.address}", wanted)
    sizes = f"{one.name} {here.name} {here.mtu}, {other.name} {there.name} {there.mtu}"
    fix = f"ip link set {there.name} mtu N on both hosts, with an N that every switch between them carries"
    reached = ways.path(one.name, other.name)
    path = reached.path if known(reached) else None
    if path is not None and path.small:
        big = max(here.mtu, there.mtu) if here.mtu == there.mtu else None
        stuck = [f"{one.name} -> {other.name}"] if not path.there else []
        stuck += [f"{other.name} -> {one.name}"] if not path.back else []
        if stuck:
            size = f"of {big} bytes " if big else ""
            return fail(
                subject, "mtu", f"{sizes}; full packets {size}vanish {' and '.join(stuck)}", wanted, fix
            )
    if here.mtu != there.mtu:
        return warn(subject, "mtu", sizes, wanted, fix)
    if path is None or not path.small:
        return ok(subject, "mtu", f"{sizes}; the path was not tried, no UDP comes through", wanted)
    return ok(subject, "mtu", f"{sizes}, full packets pass both ways", wanted)
