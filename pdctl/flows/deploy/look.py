"""One look at every host of a fleet before anything is decided; what is done afterwards is kept up here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pdctl.errors import PdctlError, UnreachableError
from pdctl.facts import model
from pdctl.facts.missing import Missing
from pdctl.facts.model import Model
from pdctl.fleet.model import Engine, Router
from pdctl.flows import admin
from pdctl.flows.asking import ask_host
from pdctl.flows.context import Context
from pdctl.flows.deploy.desired import DesiredUnit
from pdctl.flows.foreign import is_foreign
from pdctl.release.host import HostReleases, Installed
from pdctl.release.runtime import Facts
from pdctl.remote.fanout import begin, fan_out
from pdctl.units.base import Drift
from pdctl.units.envfile import parse_env
from pdctl.units.spec import UnitSpec, UnitStatus

HTTP = 5.0
# What a unit does that runs or is on its way to.
RUNS = ("activating", "active")


@dataclass
class HostState:
    """What is true of one host as far as pdctl knows: looked at once, then changed with the host.

    `specs` of unit files that cannot be read are None; `drift` is what somebody else changed of a unit's
    files, `changed` when an env or unit file below the root was, by anybody (Unix seconds of the host).
    `model` is the fleet file's, Missing where no engine of pdctl's own needs it. `newest` is the last
    deployment recorded there, `found` the one when it was looked at; `short_lived` says why units would end
    with the login, `supervised` that a supervisor was once installed there.
    """

    name: str
    tool: HostReleases
    root: str
    installed: Installed
    manifest: dict[str, Any]
    env: dict[str, str]
    private: dict[str, str]
    specs: dict[str, UnitSpec | None]
    changed: dict[str, dict[str, float]]
    drift: dict[str, list[Drift]]
    newest: dict[str, Any] | None
    model: Model | Missing
    facts: Facts
    short_lived: str = ""
    supervised: bool = False
    statuses: dict[str, UnitStatus] = field(default_factory=dict)
    found: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.found = self.newest

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
        """Whether its process was started with other inputs than wanted, or from what somebody else wrote."""
        status = self.of(unit)
        running = status.state in (*RUNS, "restarting")
        return running and (status.inputs != unit.spec.inputs or bool(self.by_hand(unit)))

    def by_hand(self, unit: DesiredUnit) -> list[str]:
        """Files that the process that runs was started from and that somebody else wrote."""
        state, started = self.hosts[unit.host], self.of(unit).started_at
        if started is None:
            return []
        drift = [d for d in state.drift.get(unit.name, ()) if d.ours is False and _before(d.at, started)]
        found = [d.what.partition(" is not ")[0] for d in drift]
        recorded = ((state.found or {}).get("units") or {}).get(unit.name)
        if recorded is None:
            return found
        changed = {kind: _before(state.changed[kind].get(unit.name), started) for kind in ("env", "units")}
        if changed["env"] and unit.name in state.env:
            known = [_fixed(unit, text) for text in (recorded["env"], unit.env_text())]
            found += ["its env file"] if _fixed(unit, state.env[unit.name]) not in known else []
        spec = state.specs.get(unit.name)
        if changed["units"] and spec is not None and self.ctx.units(unit.host).kind == "process":
            was = _spec(json.dumps({"schema": 1, **recorded["spec"]}))
            found += ["its unit file"] if was is not None and spec not in (unit.spec, was) else []
        return found

    def difference(self, unit: DesiredUnit) -> list[str]:
        """Why `unit` does not run as it should, whatever its files say."""
        status = self.of(unit)
        if self.runs_old(unit) and (files := self.by_hand(unit)):
            return [f"{unit.name} was started from what somebody else wrote: {', '.join(files)}"]
        if self.runs_old(unit):
            return [f"{unit.name} runs with other inputs than it should have"]
        if status.state in RUNS:
            return []
        why = f" ({status.reason})" if status.reason and status.state != "missing" else ""
        return [f"{unit.name} is {'not there yet' if status.state == 'missing' else status.state}{why}"]


def look_at(ctx: Context, hosts: Iterable[str], needs_model: bool = False) -> States:
    """Three round trips a host, all at once; with `needs_model` a fourth where engines of pdctl's own are."""
    engines = {e.host for e in ctx.fleet.engines() if needs_model and not is_foreign(e)}
    found = fan_out(hosts, lambda host: _look(ctx, host, host in engines))
    states = States(
        ctx,
        {h: s for h, s in found.items() if isinstance(s, HostState)},
        {h: e for h, e in found.items() if isinstance(e, PdctlError)},
    )
    states.ask_all()
    return states


def _look(ctx: Context, name: str, needs_model: bool) -> HostState:
    host = ctx.fleet.hosts[name]
    tool = HostReleases(ctx.transport(name), host)
    units = ctx.units(name)
    specs, statuses = begin(units.specs), begin(units.status)
    there = begin(partial(_model, ctx, name)) if needs_model else None
    look = tool.look()
    installed = specs.result()
    return HostState(
        name,
        tool,
        look.root,
        look.installed,
        look.manifest,
        look.env,
        look.private,
        {unit: _spec(text) for unit, text in look.units.items()},
        look.changed,
        {unit: units.drift(unit) for unit in look.units if unit not in installed},
        look.newest,
        Missing("no engine here needs it") if there is None else there.result(),
        look.facts,
        units.short_lived(),
        look.supervised,
        statuses.result(),
    )


def _model(ctx: Context, host: str) -> Model | Missing:
    try:
        found = ask_host(ctx, host, model.request(ctx.fleet.model.path)).of("model")
    except UnreachableError:
        raise
    except PdctlError as error:
        return Missing(error.message)
    return found if isinstance(found, Missing) else model.parse(found)


def _before(changed: float | None, started: float) -> bool:
    return changed is not None and changed <= started


def _fixed(unit: DesiredUnit, env: str) -> dict[str, str]:
    """What is read at a start and never changed after it."""
    return {name: value for name, value in parse_env(env).items() if name not in unit.timeouts}


def _spec(text: str) -> UnitSpec | None:
    try:
        return UnitSpec.from_json(text)
    except (ValueError, KeyError, TypeError):
        # Damaged or of another version: as good as absent, it is written anew.
        return None
