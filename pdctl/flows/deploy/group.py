"""What stands or falls together in a deploy: the engines of a cell, the router, and what is left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pdctl.fleet.model import Engine, Fleet, Router
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Author
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.deploy.files import unit_file_steps
from pdctl.flows.deploy.gate import proof_steps, record_steps
from pdctl.flows.deploy.look import HostState, States
from pdctl.flows.deploy.starts import CoRestart, co_restart_step, removal_step, start_steps, timeout_step
from pdctl.flows.foreign import is_foreign
from pdctl.plan.step import Step
from pdctl.units.spec import UnitSpec

ROUTER = "router"
LEFT = "left over"


@dataclass(frozen=True)
class Group:
    """`kind` is cell, router or left; `name` the cell's. `units` is what is wanted of it, as far as its
    `hosts` could be looked at."""

    kind: str
    name: str
    hosts: tuple[str, ...]
    units: tuple[DesiredUnit, ...]

    @property
    def key(self) -> str:
        """Of this group's steps; also how it is named to a person."""
        return f"cell {self.name}" if self.kind == "cell" else self.name

    def has(self, spec: UnitSpec | None, cells: Sequence[str]) -> bool:
        """Whether a unit that is installed belongs here; `cells` are all that the fleet has."""
        if self.kind == "left":
            return spec is None or (spec.role != "router" and spec.cell not in cells)
        if spec is None:
            return False
        return spec.role == "router" if self.kind == "router" else spec.cell == self.name

    def recorded(self, entry: dict[str, Any], cells: Sequence[str]) -> bool:
        """The same of an entry of a deployment's record."""
        place = entry["fleet"]
        if self.kind == "left":
            return place["kind"] == "engine" and place["cell"] not in cells
        return place["kind"] == "router" if self.kind == "router" else place["cell"] == self.name


@dataclass(frozen=True)
class Ways:
    """How a deploy goes about it. `wait` is the deadline of each wait for readiness, seconds; `check`: with
    a preflight of what it changes."""

    author: Author
    wait: float
    restart: CoRestart
    check: bool = True


def groups_of(fleet: Fleet, units: Mapping[str, DesiredUnit]) -> list[Group]:
    """In the order in which they are deployed: cells, then the router that must know them, then what goes."""
    cells = [_group("cell", name, cell.engines, units) for name, cell in fleet.cells.items()]
    return [*cells, _group("router", ROUTER, [fleet.router], units), Group("left", LEFT, (), ())]


def _group(
    kind: str, name: str, places: Sequence[Engine | Router], units: Mapping[str, DesiredUnit]
) -> Group:
    order = {"prefill": 0, "decode": 1, "both": 2, "router": 3}
    inside = sorted(places, key=lambda p: order[p.role])
    hosts = tuple(dict.fromkeys(p.host for p in inside))
    return Group(kind, name, hosts, tuple(units[p.name] for p in inside if p.name in units))


def group_steps(
    ctx: Context, states: States, group: Group, ways: Ways, routed: bool, back: bool = False
) -> list[Step]:
    """Files on all hosts at once, starts in order, the gate, the record.

    `routed`: the router serves as it is and is asked too; `back`: to what was recorded before, after a
    failure. Hosts that are down are not in it.
    """
    key = group.key
    steps = [s for state in states.hosts.values() for s in _host_steps(ctx, state, group)]
    cells = list(ctx.fleet.cells)
    records = record_steps(
        ctx, states, group.units, ways.author, key, lambda e: group.recorded(e, cells), back
    )
    why = ""
    if group.kind == "cell":
        why = left_held(ctx, group) if back or any(s.check() for s in records) else ""
    if why or (group.kind == "cell" and any(states.runs_old(u) for u in group.units)):
        steps.append(co_restart_step(ctx, states, group.units, group.name, key, why, ways.restart))
    else:
        steps += start_steps(ctx, states, group.units, key, ways.wait)
    steps += [timeout_step(ctx, states, u, key) for u in group.units]
    steps += proof_steps(ctx, group.units, key, ways.wait, routed)
    return steps + records


def _host_steps(ctx: Context, state: HostState, group: Group) -> list[Step]:
    wave = f"files {group.key}"
    cells = list(ctx.fleet.cells)
    mine = [u for u in group.units if u.host == state.name]
    wanted = {u.name for u in mine}
    steps = [
        removal_step(ctx, state, name, group.key, wave)
        for name, spec in sorted(state.specs.items())
        if name not in wanted and group.has(spec, cells)
    ]
    for unit in mine:
        steps += unit_file_steps(ctx, state, unit, group.key, wave)
    return steps


def left_held(ctx: Context, group: Group) -> str:
    """Whether a co-restart of this cell was cut off, so that the router still keeps requests from it."""
    if is_foreign(ctx.fleet.router):
        return ""
    front = admin.state(ctx, ctx.fleet.router.url)
    names = {u.name for u in group.units}
    cordoned = [e["instance"] for e in front.get("engines", []) if e.get("cordoned")]
    held = front.get("admission") == "held" and len(ctx.fleet.cells) == 1
    if not held and not names & set(cordoned):
        return ""
    return f"the router holds requests back from cell {group.name}, and no deploy of it has ended since"
