"""Single variables of a unit's env file on its host; the rest of the file, secrets too, stays as it is."""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.errors import PdctlError
from pdctl.fleet.model import Engine, Router
from pdctl.flows.changing import doing
from pdctl.flows.context import Context
from pdctl.units.envfile import parse_env, render_env


def read_env(ctx: Context, unit: Engine | Router) -> dict[str, str] | None:
    """What its env file says; None when it has none there."""
    path = ctx.fleet.host_paths(unit.host).env(unit.name)
    try:
        return parse_env(ctx.transport(unit.host).get(path).decode())
    except PdctlError as error:
        if error.code == "no_file":
            return None
        raise


def change_env(ctx: Context, unit: Engine | Router, values: Mapping[str, str | None]) -> None:
    """Give variables these values, None takes one away; a unit without an env file is left alone."""
    now = read_env(ctx, unit)
    if now is None:
        return
    wanted = {name: text for name, text in {**now, **values}.items() if text is not None}
    if wanted == now:
        return
    path = ctx.fleet.host_paths(unit.host).env(unit.name)
    with doing(ctx, f"{unit.host}/env/{unit.name}", unit.host, f"write the env file of {unit.name}"):
        ctx.transport(unit.host).put(render_env(wanted).encode(), path, 0o600)
