"""One look at every host of a fleet before anything is decided; what is done afterwards is kept up here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pdctl.errors import PdctlError
from pdctl.fleet.model import Engine, Router
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.foreign import is_foreign
from pdctl.release.host import HostReleases, Installed
from pdctl.release.runtime import Facts
from pdctl.remote.fanout import begin, fan_out
from pdctl.units.spec import UnitSpec, UnitStatus

HTTP = 5.0
# What a unit does that runs or is on its way to.
RUNS = ("activating", "active")


@dataclass
class HostState:
    """What is true of one host as far as pdctl knows: looked at once, then changed with the host.

    `specs` of unit files that cannot be read are None; `changed` are units whose files somebody else changed.
    `newest` is the last deployment recorded there; `short_lived` says why units would end with the login.
    """

    name: str
    tool: HostReleases
    root: str
    installed: Installed
    manifest: dict[str, Any]
    env: dict[str, str]
    private: dict[str, str]
    specs: dict[str, UnitSpec | None]
    changed: set[str]
    newest: dict[str, Any] | None
    model: bool
    facts: Facts
    short_lived: str = ""
    statuses: dict[str, UnitStatus] = field(default_factory=dict)

    def status(self, name: str) -> UnitStatus:
        return self.statuses.get(name, UnitStatus(name, "missing"))

    def runs(self, name: str) -> bool:
        return self.status(name).state in (*RUNS, "restarting", "orphaned")


@dataclass
class States:
    """Every host that could be looked at, and why the others could not."""

    ctx: Context
    hosts: dict[str, HostState]
    down: dict[str, PdctlError]
    _documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of(self, unit: DesiredUnit) -> UnitStatus:
        return self.hosts[unit.host].status(unit.name)

    def refresh(self, hosts: Iterable[str]) -> None:
        """Unit states anew, after something else than a step has changed them."""
        found = fan_out(hosts, lambda host: self.ctx.units(host).status())
        for host, statuses in found.items():
            if isinstance(statuses, PdctlError):
                raise statuses
            self.hosts[host].statuses = statuses
            self._documents.clear()

    def document(self, unit: Engine | Router) -> dict[str, Any]:
        """What the unit says of itself (/v1/state), {} when it says nothing; asked once until `forget`."""
        if is_foreign(unit):
            return {}
        if unit.name not in self._documents:
            self._documents[unit.name] = admin.state(self.ctx, unit.url, HTTP)
        return self._documents[unit.name]

    def ask_all(self) -> None:
        """The documents of all that runs, at once."""
        there = {u.name: u for u in self.ctx.fleet.units() if u.host in self.hosts}
        running = [name for name, u in there.items() if self.hosts[u.host].runs(name)]
        fan_out(running, lambda name: self.document(there[name]))

    def forget(self, unit: Engine | Router) -> None:
        self._documents.pop(unit.name, None)

    def runs_old(self, unit: DesiredUnit) -> bool:
        status = self.of(unit)
        return status.state in (*RUNS, "restarting") and status.inputs != unit.spec.inputs

    def difference(self, unit: DesiredUnit) -> list[str]:
        """Why `unit` does not run as it should, whatever its files say."""
        status = self.of(unit)
        if self.runs_old(unit):
            return [f"{unit.name} runs with other inputs than it should have"]
        if status.state in RUNS:
            return []
        why = f" ({status.reason})" if status.reason and status.state != "missing" else ""
        return [f"{unit.name} is {'not there yet' if status.state == 'missing' else status.state}{why}"]


def look_at(ctx: Context, hosts: Iterable[str], model: str | None = None) -> States:
    """Three round trips a host, all at once. `model` is a path that must be where engines are."""
    engines = {e.host for e in ctx.fleet.engines()}
    found = fan_out(hosts, lambda host: _look(ctx, host, model if host in engines else None))
    states = States(
        ctx,
        {h: s for h, s in found.items() if isinstance(s, HostState)},
        {h: e for h, e in found.items() if isinstance(e, PdctlError)},
    )
    states.ask_all()
    return states


def _look(ctx: Context, name: str, model: str | None) -> HostState:
    host = ctx.fleet.hosts[name]
    tool = HostReleases(ctx.transport(name), host)
    units = ctx.units(name)
    specs, statuses = begin(units.specs), begin(units.status)
    look = tool.look(model)
    there = specs.result()
    return HostState(
        name,
        tool,
        look.root,
        look.installed,
        look.manifest,
        look.env,
        look.private,
        {unit: _spec(text) for unit, text in look.units.items()},
        {unit for unit in look.units if unit not in there},
        look.newest,
        look.model,
        look.facts,
        units.short_lived(),
        statuses.result(),
    )


def _spec(text: str) -> UnitSpec | None:
    try:
        return UnitSpec.from_json(text)
    except (ValueError, KeyError, TypeError):
        # Damaged or of another version: as good as absent, it is written anew.
        return None
