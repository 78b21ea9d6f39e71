"""Preflight of a host itself: Python, disk, shared memory, locked memory, the model, the clock; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdctl.facts import clock
from pdctl.facts.clock import Clock
from pdctl.facts.machine import GIB, MIB, ROOM, Python, size
from pdctl.facts.missing import Missing, known
from pdctl.fleet.checks import PAGE_SIZE, PAGES
from pdctl.flows.check.hosts import HostState
from pdctl.flows.check.report import Line, fail, ok, skip, warn
from pdctl.release.runtime import LEAST

# What the libraries take, once per host (CPU measured, CUDA as published).
LIBRARIES = {"cpu": 3 * GIB, "cuda": 12 * GIB}
INODES = 20_000
# Shared memory of ranks that exchange tensors; containers give 64 MiB, which NCCL is known to exhaust.
SHM, SHM_RANKS = 64 * MIB, GIB
_NTP = "timedatectl set-ntp true"


def lines(state: HostState) -> Iterator[Line]:
    if state.units:
        yield _manager(state)
    yield from _python(state)
    yield _disk(state)
    if state.engines:
        yield _shm(state)
        yield _memlock(state)
        yield _model(state)
        yield from _ranks(state)
        yield from _kv(state)


def _manager(state: HostState) -> Line:
    """Whether this login may start and look at units there."""
    scope = state.host.spec.scope
    wanted = "a login that may become root" if scope == "system" else "a login that has a systemd of its own"
    if state.manager is not None:
        found, fix = state.manager.message.rstrip("."), state.manager.hint
        if scope == "user":  # a deploy asks for it, and many hosts let users have it
            return warn(state.name, "units", found, wanted, fix or "loginctl enable-linger")
        return fail(state.name, "units", found, wanted, fix or "pdctl status")
    return ok(state.name, "units", f"units of scope {scope} can be looked at", wanted)


def _python(state: HostState) -> Iterator[Line]:
    """The interpreter that is there, and those that installed units run with."""
    if not any(unit.kind == "bundled" for unit in state.units):
        return
    least = ".".join(map(str, LEAST))
    for path, found in state.pythons.items():
        own = path == state.host.tool_python
        wanted = f"{least} or newer"
        named = f"name one as hosts.{state.name}.python, or install Python {least}"
        if isinstance(found, Missing):
            yield fail(state.name, "python", found.reason, wanted, named if own else "pdctl deploy")
        elif found.version[:2] < LEAST:
            yield fail(state.name, "python", f"{path} is {found.words}", wanted, named)
        elif own and state.host.runtime != "existing":
            yield ok(state.name, "python", f"{path} is {found.words}", wanted)
        else:
            yield _libraries(state, found, f"{wanted} with the engine's libraries")


def _libraries(state: HostState, found: Python, wanted: str) -> Line:
    if found.lacking:
        fix = f"{found.path} -m pip install -c constraints.txt '.[engine]'"
        return fail(state.name, "python", f"{found.path} lacks {', '.join(found.lacking)}", wanted, fix)
    shown = ", ".join(f"{name} {found.dists[name]}" for name in ("torch", "nixl") if name in found.dists)
    return ok(state.name, "python", f"{found.path} is {found.words}, {shown}", wanted)


def _disk(state: HostState) -> Line:
    room, root = state.disk, state.host.root
    cuda = any(engine.spec.device == "cuda" for engine in state.engines)
    installed = any(launch.python.startswith(f"{root}/") for launch in state.launches.values())
    need = ROOM
    if state.host.runtime != "existing" and not installed:
        need = LIBRARIES["cuda" if cuda else "cpu"]
    wanted = f"{size(need)} at {root} for a release"
    if isinstance(room, Missing):
        return skip(state.name, "disk", room, wanted)
    found = f"{size(room.free)} of {size(room.total)} free"
    clean = f"free space on {room.path}, or set hosts.{state.name}.root to another disk"
    if room.path == root and not room.writable:
        fix = f"chown {root} to the user that pdctl logs in as"
        return fail(state.name, "disk", f"{root} is not writable for the login", wanted, fix)
    if room.free < ROOM or (room.free < need and not state.launches):
        return fail(state.name, "disk", found, wanted, clean)
    if room.free < need:
        return warn(state.name, "disk", found, wanted, clean)
    if room.inodes_free is not None and room.inodes_free < INODES:
        return warn(state.name, "disk", f"{room.inodes_free} inodes free", f"{INODES} inodes", clean)
    return ok(state.name, "disk", found, wanted)


def _shm(state: HostState) -> Line:
    ranks = any(engine.tp > 1 for engine in state.engines)
    need = SHM_RANKS if ranks else SHM
    wanted = f"{size(need)} free in /dev/shm" + (" for engines with several ranks" if ranks else "")
    if isinstance(state.shm, Missing):
        return skip(state.name, "shm", state.shm, wanted)
    found = f"{size(state.shm.free)} of {size(state.shm.total)} free"
    if state.shm.free < need:
        fix = f"mount -o remount,size={max(1, need // GIB)}G /dev/shm, or remove what old runs left there"
        return fail(state.name, "shm", found, wanted, fix)
    return ok(state.name, "shm", found, wanted)


def _memlock(state: HostState) -> Line:
    """Only RDMA and GPUs pin memory; UCX over TCP locks none."""
    devices = [r.device for r in state.rdma if r.active] if known(state.rdma) else []
    cuda = [engine.name for engine in state.engines if engine.spec.device == "cuda"]
    needs = bool(devices or cuda)
    why = ", ".join(devices or cuda)
    wanted = f"unlimited, because {why} pins memory" if needs else "any: nothing here pins memory"
    limits = _limits(state)
    if isinstance(limits, Missing):
        return skip(state.name, "memlock", limits, wanted)
    found = ", ".join(f"{name} {size(limit)}" for name, limit in limits.items())
    if needs and any(limit is not None for limit in limits.values()):
        fix = "pdctl's units ask for infinity: let init have it; for a user's units set it in limits.conf"
        return fail(state.name, "memlock", found, wanted, fix)
    return ok(state.name, "memlock", found, wanted)


def _limits(state: HostState) -> dict[str, int | None] | Missing:
    """Bytes, None for unlimited, of the units that run, else of those that will be started."""
    found: dict[str, int | None] = {}
    for name, facts in state.facts.items():
        if name in state.ending or isinstance(facts.process, Missing):
            continue
        if not isinstance(facts.process.memlock, Missing):
            found[name] = facts.process.memlock
    if found:
        return found
    if isinstance(state.memlock, Missing):
        return state.memlock
    return {"units to come": state.memlock.system if state.machine_units else state.memlock.login}


def _model(state: HostState) -> Line:
    wanted = "the model at model.path"
    if isinstance(state.model, Missing):
        return skip(state.name, "model", state.model, wanted)
    own = any(engine.kind == "bundled" for engine in state.engines)
    path = f"model.path ({at})" if (at := state.places.get("model")) else "model.path"
    if not state.model.there:
        # An engine of another kind has its model in its own command, and pdctl only a copy of that word.
        say = fail if own else warn
        return say(state.name, "model", "it is not on this host", wanted, f"copy it there, or correct {path}")
    if own and state.model.wrong:
        fix = f"copy or pull it again, or correct {path}"
        return fail(state.name, "model", f"it cannot be loaded: {state.model.wrong}", wanted, fix)
    return ok(state.name, "model", "it is there", wanted)


def _ranks(state: HostState) -> Iterator[Line]:
    """Only engines that cannot be shared out as they should."""
    model = state.model
    if isinstance(model, Missing) or model.parts is None:
        return
    for engine in state.engines:
        if engine.kind == "bundled" and not model.serves(engine.tp):
            found = f"tp is {engine.tp}, and the model has {model.parts} {model.parts_are}"
            at = state.places.get(engine.name, "the fleet file")
            fix = f"set tp to {model.parts} or less ({at})"
            yield fail(engine.name, "tp", found, f"some of the {model.parts_are} for each rank", fix)


def _kv(state: HostState) -> Iterator[Line]:
    """Only pages of CPU engines that are more than the memory of the whole host."""
    model, numa = state.model, state.numa
    if isinstance(model, Missing) or model.kv_values is None or isinstance(numa, Missing):
        return
    here = [e for e in state.engines if e.kind == "bundled" and e.spec.device != "cuda"]
    need = {
        e.name: (e.spec.pages or PAGES)
        * (e.spec.page_size or PAGE_SIZE)
        * model.kv_values
        * (2 if e.spec.dtype == "bfloat16" else 4)
        for e in here
    }
    memory = sum(node.memory for node in numa.nodes)
    if 0 < memory < sum(need.values()):
        found = ", ".join(f"{name} {size(n)}" for name, n in need.items())
        wanted = f"KV pages within the {size(memory)} of memory here"
        yield fail(state.name, "kv", found, wanted, "set pages or page_size to less in the fleet file")


def clock_lines(clocks: Mapping[str, Clock | Missing]) -> Iterator[Line]:
    """One line a host, and one for this machine when it is the odd one out."""
    wanted = f"within {clock.SKEW:g} s of each other"
    yield from (skip(h, "clock", c, wanted) for h, c in clocks.items() if isinstance(c, Missing))
    middle, apart = clock.spread({h: c for h, c in clocks.items() if known(c)})
    for host, away in apart.items():
        found = f"{away.offset:+.3f} s ± {away.error:.3f} s from {middle}"
        certain = clock.at_least(away)
        fix = f"{_NTP} on {host}; then `timedatectl` there says whether it is synchronised"
        if certain > clock.BROKEN:
            yield fail(host, "clock", found, wanted, fix)
        elif certain > clock.SKEW:
            yield warn(host, "clock", found, wanted, fix)
        elif host != clock.OURS:
            yield ok(host, "clock", found, wanted)
