"""What preflight asks of each host: its units, then everything else in one question."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pdctl.errors import PdctlError, UnreachableError
from pdctl.facts import clock, gpu, machine, model, ports, topology
from pdctl.facts.ask import Answers, Request
from pdctl.facts.clock import Clock
from pdctl.facts.collect import UnitFacts, collect
from pdctl.facts.missing import Missing, known
from pdctl.facts.process import pids_of
from pdctl.fleet.model import Engine, Fleet, Host, Router
from pdctl.fleet.place import place
from pdctl.fleet.profile import engine_env
from pdctl.flows.asking import ask_host
from pdctl.flows.context import Context
from pdctl.release.runtime import needed_dists
from pdctl.remote.fanout import fan_out
from pdctl.transport.command import Command
from pdctl.units.spec import UnitSpec

# Short round trips for the clock: the shortest of them says most.
TICKS = 4
SPARE = 4


@dataclass(frozen=True)
class Launch:
    """How an engine's Python is started on a host: interpreter, and what it needs in its environment."""

    python: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class HostState:
    """One host as it was found. `units` are those that the fleet file puts there, `launches` those of them
    that are installed; `machine_units`: the machine's systemd runs them; `spare` are ports of its address
    that nobody listens on, `env` what each unit is started with. `ending` are units that a deploy stops
    before it starts any of `units`: `facts` has them too, and what they hold is as good as free. `manager`:
    why no unit can be looked at there. `places` are FILE:LINE of the model's path, and by engine of its tp.
    """

    host: Host
    units: tuple[Engine | Router, ...]
    facts: Mapping[str, UnitFacts]
    launches: Mapping[str, Launch]
    clock: Clock | Missing
    disk: machine.Room | Missing
    shm: machine.Room | Missing
    memlock: machine.Memlock | Missing
    model: model.Model | Missing
    boot: str | Missing
    pythons: Mapping[str, machine.Python | Missing]
    gpus: gpu.Gpus | Missing
    numa: topology.Numa | Missing
    interfaces: tuple[topology.Interface, ...] | Missing
    rdma: tuple[topology.Rdma, ...] | Missing
    ports: tuple[ports.PortState, ...] | Missing
    machine_units: bool
    spare: tuple[int, ...]
    addresses: tuple[str, ...]
    env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ending: frozenset[str] = frozenset()
    manager: PdctlError | None = None
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def engines(self) -> tuple[Engine, ...]:
        return tuple(u for u in self.units if isinstance(u, Engine))

    def pids(self, unit: str) -> frozenset[int]:
        """Of a unit's processes; empty when it does not run."""
        return pids_of(self.facts[unit].unit, self.facts[unit].process)

    @property
    def leaving(self) -> frozenset[int]:
        """Processes of the units that are `ending`."""
        return frozenset().union(*(self.pids(name) for name in self.ending & self.facts.keys()))

    @property
    def interface(self) -> topology.Interface | None:
        """The one that has the address by which peers reach this host."""
        return topology.carrying(self.interfaces, self.addresses) if known(self.interfaces) else None


def look(
    ctx: Context, given: Mapping[str, Launch], ending: Collection[str] = ()
) -> dict[str, HostState | PdctlError]:
    """Every host at once. `given` are launches, by unit, of a release that is installed and not yet used;
    `ending` as in HostState."""
    return fan_out(ctx.fleet.hosts, partial(_host, ctx, given, frozenset(ending)))


def _host(ctx: Context, given: Mapping[str, Launch], ending: frozenset[str], name: str) -> HostState:
    units = tuple(u for u in ctx.fleet.units() if u.host == name)
    tick = _clock(ctx, name)
    launches, manager = _launches(ctx, name, units)
    launches |= {u.name: given[u.name] for u in units if u.name in given}
    asked = request(ctx.fleet, ctx.fleet.hosts[name], units, launches)
    names = [*dict.fromkeys([*(u.name for u in units), *sorted(ending)])]
    facts, answers = collect(ctx.units(name), partial(ask_host, ctx, name), names, asked)
    system = ctx.units(name).kind == "systemd" and ctx.fleet.hosts[name].spec.scope == "system"
    found = state(ctx.fleet, ctx.fleet.hosts[name], units, facts, launches, answers, tick, system)
    return replace(found, ending=ending, manager=manager)


def _clock(ctx: Context, name: str) -> Clock | Missing:
    """The first contact: UnreachableError when there is no way to the host."""
    transport = ctx.transport(name)
    found = []
    for _ in range(TICKS):
        sent = time.time()
        result = transport.run(Command(("date", "+%s.%N")), 10.0)
        try:
            found.append(clock.measured(sent, result.seconds, float(result.text)))
        except ValueError:
            return Missing(f"date said {(result.tail(1) or ['nothing'])[0]!r}")
    return clock.best(found)


def _launches(
    ctx: Context, name: str, units: tuple[Engine | Router, ...]
) -> tuple[dict[str, Launch], PdctlError | None]:
    """From the unit files that lie there, and why they cannot be read or would not last. Engines that bring
    their own command are not started by us."""
    backend = ctx.units(name)
    try:
        specs = backend.specs([unit.name for unit in units])
        short_lived = backend.short_lived()
    except UnreachableError:
        raise
    except PdctlError as error:
        return {}, error
    own = {unit.name for unit in units if unit.kind == "bundled"}
    launches = {unit: launch(spec) for unit, spec in specs.items() if unit in own}
    if not short_lived:
        return launches, None
    login = ctx.fleet.hosts[name].spec.user or "LOGIN"
    hint = f"as root: loginctl enable-linger {login}"
    return launches, PdctlError("short_lived", f"{short_lived}, so its units end when it logs out.", hint)


def launch(spec: UnitSpec) -> Launch:
    """As the unit starts its engine."""
    python = spec.argv[spec.argv.index("-m") - 1] if "-m" in spec.argv else spec.argv[0]
    return Launch(python, dict(spec.env))


def pythons(host: Host, launches: Mapping[str, Launch]) -> list[str]:
    """Interpreters that engines run with, or will be made from; the host's own comes first."""
    return list(dict.fromkeys([host.tool_python, *(each.python for each in launches.values())]))


def request(
    fleet: Fleet, host: Host, units: tuple[Engine | Router, ...], launches: Mapping[str, Launch]
) -> Request:
    wanted = [port for unit in units for port in unit.ports]
    return {
        "boot": {},
        "disk": {"path": host.root},
        "shm": {},
        "memlock": {},
        **model.request(fleet.model.path),
        "python": {"interpreters": pythons(host, launches), "dists": needed_dists()[0]},
        "gpu": {},
        "numa": {},
        "interfaces": {},
        "rdma": {},
        **ports.request(host.address, wanted),
        "resolve": {"names": [host.address]},
        "spare": {"address": host.address, "count": SPARE},
    }


def state(
    fleet: Fleet,
    host: Host,
    units: tuple[Engine | Router, ...],
    facts: Mapping[str, UnitFacts],
    launches: Mapping[str, Launch],
    answers: Answers,
    tick: Clock | Missing,
    system: bool,
) -> HostState:
    resolved, spare = answers.of("resolve"), answers.of("spare")
    said = answers.of("python")
    return HostState(
        host=host,
        units=units,
        facts=facts,
        launches=launches,
        clock=tick,
        disk=machine.room(answers.of("disk")),
        shm=machine.room(answers.of("shm")),
        memlock=machine.memlock(answers.of("memlock")),
        model=_model(fleet, answers),
        boot=answers.of("boot"),
        pythons={path: machine.python(path, said) for path in pythons(host, launches)},
        gpus=gpu.parse(answers.of("gpu")),
        numa=topology.numa(answers.of("numa")),
        interfaces=topology.interfaces(answers.of("interfaces")),
        rdma=topology.rdma(answers.of("rdma")),
        ports=ports.parse(answers.of("ports")),
        machine_units=system,
        spare=tuple(spare) if known(spare) else (),
        addresses=tuple(resolved[host.address]) if known(resolved) else (),
        env={unit.name: _env(fleet, unit) for unit in units},
        places=_places(fleet, units),
    )


def _model(fleet: Fleet, answers: Answers) -> model.Model | Missing:
    """What lies at model.path, where it is a path at all."""
    if not fleet.model.path.startswith("/"):
        return Missing(f"{fleet.model.path} is a name in a hub and no path")
    found: dict[str, Any] | Missing = answers.of("model")
    return found if isinstance(found, Missing) else model.parse(found)


def _places(fleet: Fleet, units: tuple[Engine | Router, ...]) -> dict[str, str]:
    tp = {u.name: ("cells", u.cell, "engines", u.name, "tp") for u in units if isinstance(u, Engine)}
    return {"model": place(fleet, "model", "path"), **{n: place(fleet, *keys) for n, keys in tp.items()}}


def _env(fleet: Fleet, unit: Engine | Router) -> dict[str, str]:
    return {name: value.value for name, value in engine_env(fleet, unit).items()}
