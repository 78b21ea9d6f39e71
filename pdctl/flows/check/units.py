"""Preflight of units on their host: ports, GPUs, NUMA binding, the devices that UCX is told to use; pure."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.facts.missing import Missing, known
from pdctl.facts.ports import TAKEN, PortState
from pdctl.facts.topology import cpu_list
from pdctl.fleet.model import Engine, Router
from pdctl.flows.check.hosts import HostState
from pdctl.flows.check.report import Line, fail, ok, skip, warn

_ANY = ("0.0.0.0", "::")


def lines(state: HostState) -> Iterator[Line]:
    yield from _ports(state)
    for engine in state.engines:
        yield from _gpu(state, engine)
        yield _numa(state, engine)
    if any(_gpu_wanted(engine) for engine in state.engines):
        yield from _shared(state)


def _ports(state: HostState) -> Iterator[Line]:
    if isinstance(state.ports, Missing):
        yield skip(state.name, "ports", state.ports, "free, or held by the unit they belong to")
        return
    strange = next((p.error for p in state.ports if p.error not in ("", TAKEN)), "")
    if strange:
        address = state.host.address
        fix = f"set hosts.{state.name}.address to one that `ip addr` shows there"
        yield fail(state.name, "address", f"{address}: {strange}", "an address of this host", fix)
        return
    by_port = {p.port: p for p in state.ports}
    for unit in state.units:
        for port in unit.ports:
            yield _port(state, unit, by_port[port])


def _port(state: HostState, unit: Engine | Router, port: PortState) -> Line:
    mine = state.pids(unit.name)
    wanted = f"{port.port} free, or held by {unit.name}"
    own = [h for h in port.holders if h.of(mine)]
    leaving = [h for h in port.holders if h.of(state.leaving)]
    if any(h not in leaving for h in port.strangers(mine)):
        return _taken(state, unit, port, wanted)
    if leaving:
        return ok(unit.name, "ports", f"{port.port} held by pid {leaving[0].pid}, which ends first", wanted)
    if own and port.free:
        # Something of the unit listens on that port, and not at the address that peers use.
        heard = ", ".join(sorted({h.address for h in own}))
        return fail(
            unit.name,
            "ports",
            f"{port.port} is open at {heard} only, peers use {port.address}",
            wanted,
            "pdctl deploy",
        )
    if own:
        return ok(unit.name, "ports", f"{port.port} held by {unit.name} itself, pid {own[0].pid}", wanted)
    if not port.free:
        return fail(unit.name, "ports", f"{port.port} {port.words}", wanted, "run pdctl as root to see whose")
    return ok(unit.name, "ports", f"{port.port} free", wanted)


def _taken(state: HostState, unit: Engine | Router, port: PortState, wanted: str) -> Line:
    owner = next((u.name for u in state.units for h in port.holders if h.of(state.pids(u.name))), "")
    found = f"{port.port} {port.words}" + (f", which is {owner} of this fleet" if owner else "")
    service = next((h.service for h in port.holders if h.service), "")
    pid = next((h.pid for h in port.holders if h.pid), None)
    stop = f"systemctl stop {service}" if service else f"kill {pid}" if pid else "stop that process"
    fix = "pdctl deploy" if owner else f"{stop} on {state.name}, or give {unit.name} another port"
    return fail(unit.name, "ports", found, wanted, fix)


def _gpu_wanted(engine: Engine) -> bool:
    return engine.spec.device == "cuda" or engine.spec.gpus is not None


def _indices(engine: Engine) -> list[int]:
    return list(engine.spec.gpus) if engine.spec.gpus is not None else list(range(engine.tp))


def _gpu(state: HostState, engine: Engine) -> Iterator[Line]:
    """An engine with a command of its own may use any GPU that is there, unless the fleet file names some."""
    if not _gpu_wanted(engine) and (engine.kind == "bundled" or isinstance(state.gpus, Missing)):
        return
    indices = _indices(engine)
    if not _gpu_wanted(engine) and known(state.gpus):
        indices = [g.index for g in state.gpus.gpus]
    wanted = f"GPU {', '.join(map(str, indices))}, held by nobody else"
    if isinstance(state.gpus, Missing):
        fix = f"install the NVIDIA driver on {state.name}; `nvidia-smi` there must list the GPUs"
        yield fail(engine.name, "gpu", state.gpus.reason, wanted, fix)
        return
    there = {g.index for g in state.gpus.gpus}
    lacking = [n for n in indices if n not in there]
    if lacking:
        shown = ", ".join(map(str, sorted(there))) or "none"
        fix = "correct `gpus` or `tp` in the fleet file"
        yield fail(engine.name, "gpu", f"{state.name} has GPU {shown}", wanted, fix)
        return
    mine = state.leaving.union(*(state.pids(unit.name) for unit in state.units))
    foreign = [(n, h) for n in indices for h in state.gpus.holders_of(n) if not h.of(mine)]
    if foreign:
        held = "; ".join(f"GPU {n}: {h.words}" for n, h in foreign)
        pids = " ".join(str(h.pid) for _, h in foreign)
        yield fail(engine.name, "gpu", held, wanted, f"end it (ps -fp {pids}), or choose other GPUs")
        return
    names = ", ".join(sorted({g.name for g in state.gpus.gpus if g.index in indices}))
    yield ok(engine.name, "gpu", f"{names}, driver {state.gpus.driver}", wanted)


def _shared(state: HostState) -> Iterator[Line]:
    """Two engines on one GPU, which no running process shows before both have started."""
    seen: dict[int, str] = {}
    for engine in filter(_gpu_wanted, state.engines):
        for index in _indices(engine):
            other = seen.setdefault(index, engine.name)
            if other != engine.name:
                fix = "give each engine its own `gpus` in the fleet file"
                found = f"GPU {index} is {other}'s too"
                yield fail(engine.name, "gpu", found, "GPUs of its own", fix)


def _numa(state: HostState, engine: Engine) -> Line:
    numa, node = state.numa, engine.spec.numa
    wanted = f"bound to node {node}" if node is not None else "bound to a node where there are several"
    if isinstance(numa, Missing):
        return skip(engine.name, "numa", numa, wanted)
    count = len(numa.nodes)
    if node is None:
        if count > 1:
            fix = f"set numa = 0..{count - 1} for {engine.name} in the fleet file, the node of its GPUs"
            return warn(engine.name, "numa", f"{count} nodes, bound to none", wanted, fix)
        return ok(engine.name, "numa", "one node", wanted)
    there = numa.node(node)
    fix = f"correct numa of {engine.name} in the fleet file"
    if there is None:
        ids = ", ".join(str(n.id) for n in numa.nodes) or "none"
        return fail(engine.name, "numa", f"{state.name} has node {ids}", wanted, fix)
    if not there.cpus & numa.cpus:
        found = f"no CPU of node {node} may be used there"
        return fail(engine.name, "numa", found, wanted, f"widen the CPU set of {state.name}, or {fix}")
    return _bound(state, engine, node, there.cpus, wanted) or _near(state, engine, node, wanted)


def _bound(state: HostState, engine: Engine, node: int, cpus: frozenset[int], wanted: str) -> Line | None:
    """A running engine that is not where it should be."""
    process = state.facts[engine.name].process
    if engine.name in state.ending or isinstance(process, Missing) or not process.cpus:
        return None
    if cpu_list(process.cpus) <= cpus and cpu_list(process.mems or str(node)) <= {node}:
        return None
    found = f"it runs on CPUs {process.cpus}, memory of node {process.mems or '?'}"
    return warn(engine.name, "numa", found, wanted, f"pdctl deploy, then pdctl restart --co {engine.cell}")


def _near(state: HostState, engine: Engine, node: int, wanted: str) -> Line:
    """Whether its GPUs hang on another node."""
    if known(state.gpus) and known(state.numa) and _gpu_wanted(engine):
        places = {g.index: state.numa.near(g.pci) for g in state.gpus.gpus}
        far = {n: places[n] for n in _indices(engine) if places.get(n) not in (None, node)}
        if far:
            shown = ", ".join(f"GPU {n} is near node {at}" for n, at in far.items())
            fix = f"set numa of {engine.name} to the node of its GPUs"
            return warn(engine.name, "numa", shown, wanted, fix)
    return ok(engine.name, "numa", f"node {node} is there", wanted)
