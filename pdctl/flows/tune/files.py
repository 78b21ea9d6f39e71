"""The record of what serves, after timeouts were set live: a deploy has nothing left to do about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pdctl.errors import PdctlError
from pdctl.flows.changing import doing
from pdctl.flows.context import Context
from pdctl.flows.deploy.deployment import Author, record
from pdctl.flows.deploy.look import HostState, look_at
from pdctl.flows.deploy.planning import author
from pdctl.flows.tune.apply import profile_name, taken
from pdctl.units.envfile import parse_env, render_env


def note_deployment(ctx: Context, wanted: Mapping[str, float]) -> list[str]:
    """What served with the old env files is recorded as serving with the present ones, and nothing else is.

    One sentence for each host where that could not be done.
    """
    states = look_at(ctx, list(dict.fromkeys(u.host for u in ctx.fleet.units())))
    failed = dict(states.down)
    made = author(ctx, states, "tune-timeout")
    for name, state in states.hosts.items():
        try:
            _record(ctx, state, wanted, made)
        except PdctlError as error:
            failed[name] = error
    return [
        f"what serves on {host} could not be recorded ({error.message}); `pdctl deploy` does it"
        for host, error in failed.items()
    ]


def _record(ctx: Context, state: HostState, wanted: Mapping[str, float], made: Author) -> None:
    if state.newest is None:
        return
    before: dict[str, dict[str, Any]] = state.newest["units"]
    units = {name: {**row, "env": _now(ctx, state, name, row["env"], wanted)} for name, row in before.items()}
    if units == before:
        return
    document = record(made, ctx.fleet, state.name, units, state.newest, {})
    path = ctx.fleet.host_paths(state.name).deployment(made.id)
    with doing(ctx, f"{state.name}/record", state.name, "record what serves"):
        ctx.transport(state.name).put(json.dumps(document, indent=1).encode(), path, 0o600)
    state.newest = document


def _now(ctx: Context, state: HostState, name: str, served: str, wanted: Mapping[str, float]) -> str:
    """The unit's env file where it differs from what served by these values alone; else what served."""
    unit = next((u for u in ctx.fleet.units() if u.name == name), None)
    if unit is None or name not in state.env:
        return served
    mine = {e: f"{v:g}" for e, v in taken(ctx.fleet, unit, profile_name(ctx.fleet), wanted).items()}
    text = render_env(parse_env(served) | mine)
    return text if text == state.env[name] else served
