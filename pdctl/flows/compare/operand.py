"""What an operand of `profile diff` names: NAME, release:ID, running, running:UNIT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pdctl.errors import ConfigError, PdctlError
from pdctl.exits import Exit
from pdctl.facts import process
from pdctl.facts.collect import gather
from pdctl.facts.missing import Missing
from pdctl.facts.process import shown
from pdctl.fleet.model import Engine, Router
from pdctl.fleet.names import nearest
from pdctl.fleet.profile import engine_env, load_profile
from pdctl.flows import admin
from pdctl.flows.asking import ask_host
from pdctl.flows.compare.side import Environ, Held, Side, same
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Deployment, Entry
from pdctl.flows.deploy.kept import list_deployments
from pdctl.remote.fanout import fan_out
from pdctl.units.envfile import parse_env

DEADLINE = 10.0
_HINT = "NAME is a profile, release:ID what a deployment recorded, running:UNIT or running what runs."
Found = Mapping[str, Held | Missing]


def resolve(ctx: Context, operand: str) -> Side:
    """ConfigError for an operand that names nothing; PdctlError when nothing of it can be asked."""
    kind, colon, name = operand.partition(":")
    if kind == "running" and (name or not colon):
        side = _running(ctx, operand, [ctx.fleet.unit(name)] if name else list(ctx.fleet.units()))
        return replace(side, only=bool(name))
    if kind == "release" and colon:
        return _recorded(ctx, operand, name)
    if colon:
        raise ConfigError("bad_operand", f"{operand} names nothing that can be compared.", _HINT)
    return Side(operand, load_profile(ctx.fleet.paths.profiles, operand))


def _running(ctx: Context, label: str, units: list[Engine | Router]) -> Side:
    hosts = dict.fromkeys(u.host for u in units)
    found = fan_out(hosts, lambda host: _on_host(ctx, host, [u for u in units if u.host == host]))
    held: dict[str, Held] = {}
    notes: list[str] = []
    for host, told in found.items():
        if isinstance(told, PdctlError):
            notes.append(f"{host} cannot be asked: {told.message}")
            continue
        for name, each in told.items():
            if isinstance(each, Missing):
                notes.append(f"{name} is left out: {each.reason}.")
            else:
                held[name] = each
                if each.live:
                    said = ", ".join(f"{env}={value}" for env, value in each.live.items())
                    notes.append(f"{name} has values that were set live since its start: {said}.")
    if not held:
        said = f"Of {label} no process can be read."
        raise PdctlError("nothing_runs", said, exit=Exit.UNREACHABLE, details=notes)
    return Side(label, units=held, running=True, notes=tuple(notes))


def _on_host(ctx: Context, host: str, units: list[Engine | Router]) -> Found:
    names = [u.name for u in units]
    gathered = gather(ctx.units(host), lambda asked: ask_host(ctx, host, asked, DEADLINE), names, {})
    facts = gathered.units(names)
    return {u.name: _environ(ctx, u, facts[u.name].process) for u in units}


def _environ(ctx: Context, unit: Engine | Router, told: process.Process | Missing) -> Held | Missing:
    if isinstance(told, Missing):
        return told
    if isinstance(told.environ, Missing):
        return told.environ
    secret = frozenset(env for env, value in engine_env(ctx.fleet, unit).items() if value.secret)
    return Held(unit.role, told.environ, secret, _set_live(ctx, unit, told.environ))


def _set_live(ctx: Context, unit: Engine | Router, environ: Environ) -> Environ:
    """Values in force that are not those it was started with; none of one that does not say."""
    if unit.kind != "bundled":
        return {}
    rows = admin.state(ctx, unit.url).get("timeouts", {}).values()
    now = {row["env"]: f"{row['value']:g}" for row in rows if row.get("source") == "admin"}
    return {env: value for env, value in now.items() if not same(value, environ.get(env))}


def _recorded(ctx: Context, label: str, id: str) -> Side:
    """By the id of a deployment or of a release, "current" for what serves; of several the newest."""
    known, silent = list_deployments(ctx)
    notes = tuple(f"{host} cannot be asked: {error.message}" for host, error in silent.items())
    found = next((d for d in known if _is(d, id)), None)
    if found is None:
        names = ["current", *(name for d in known for name in (*d.ids, *d.releases))]
        hint = nearest(id, names) if known else "Nothing has been deployed yet."
        raise ConfigError(
            "no_deployment", f"There is no deployment or release {id}." if id else "release: has no ID.", hint
        )
    return Side(label, units={name: _entry(entry) for name, entry in found.units()}, notes=notes)


def _is(deployment: Deployment, id: str) -> bool:
    return id in (*deployment.ids, *deployment.releases) or (id == "current" and deployment.serves)


def _entry(entry: Entry) -> Held:
    place = entry["fleet"]
    role = "router" if place["kind"] == "router" else place["table"]["role"]
    return Held(role, shown(parse_env(entry["env"])), frozenset(entry.get("secret", ())))
