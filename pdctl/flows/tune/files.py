"""Env files of a fleet whose timeouts were set while it runs: a unit that restarts comes back with them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pdctl.errors import PdctlError
from pdctl.flows.changing import doing
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Author, record
from pdctl.flows.deploy.look import HostState, look_at
from pdctl.flows.deploy.planning import author
from pdctl.flows.tune.apply import profile_name, taken
from pdctl.units.envfile import parse_env, render_env


def write_env(ctx: Context, wanted: Mapping[str, float]) -> list[str]:
    """Change those values and nothing else in what is installed, and in the record of what serves.

    One sentence for each host where that could not be done: what restarts there has the old values.
    """
    states = look_at(ctx, list(dict.fromkeys(u.host for u in ctx.fleet.units())))
    failed = dict(states.down)
    made = author(ctx, states, "tune-timeout")
    for name, state in states.hosts.items():
        try:
            before = dict(state.env)
            _write(ctx, state, wanted)
            if any(before[unit] != text for unit, text in state.env.items()):
                _record(ctx, state, before, made)
        except PdctlError as error:
            failed[name] = error
    return [
        f"the env files on {host} could not be written ({error.message}); `pdctl deploy` does it"
        for host, error in failed.items()
    ]


def _write(ctx: Context, state: HostState, wanted: Mapping[str, float]) -> None:
    fleet = ctx.fleet
    profile = profile_name(fleet)
    for unit in fleet.units():
        if unit.host != state.name or unit.name not in state.env:
            continue
        mine = {env: f"{value:g}" for env, value in taken(fleet, unit, profile, wanted).items()}
        text = render_env(parse_env(state.env[unit.name]) | mine)
        if text == state.env[unit.name]:
            continue
        path = fleet.host_paths(state.name).env(unit.name)
        with doing(ctx, f"{state.name}/env/{unit.name}", state.name, f"write the env file of {unit.name}"):
            ctx.transport(state.name).put(text.encode(), path, 0o600)
        state.env[unit.name] = text


def _record(ctx: Context, state: HostState, before: Mapping[str, str], made: Author) -> None:
    """What served with the old files serves with these: no deploy has anything left to do about them."""
    if state.newest is None:
        return
    units = {
        name: {**found, "env": state.env[name]} if before.get(name) == found["env"] else found
        for name, found in state.newest["units"].items()
    }
    document = record(made, ctx.fleet, state.name, units, state.newest, {})
    path = ctx.fleet.host_paths(state.name).deployment(made.id)
    with doing(ctx, f"{state.name}/record", state.name, "record what serves"):
        ctx.transport(state.name).put(json.dumps(document, indent=1).encode(), path, 0o600)
    state.newest = document
