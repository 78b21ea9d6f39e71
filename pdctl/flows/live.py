"""Set a profile's value on the engines that run with that profile, without a restart."""

from __future__ import annotations

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.catalogue import known
from pdctl.fleet.check.live import reach
from pdctl.fleet.model import Engine, Router
from pdctl.fleet.profile import engine_env, load_profile
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.foreign import is_foreign
from pdctl.remote.fanout import fan_out

QUICK = 5.0


def check_live(env: str) -> None:
    """ConfigError when the variable is read only at start: before a file is changed for it."""
    if (env in known() or not env.startswith("PD_")) and (why := reach(env)):
        raise ConfigError("not_live", why, "Leave out --live and run `pdctl deploy`.")


def set_live(ctx: Context, profile: str, env: str) -> dict[str, str]:
    """Unit -> "" or why it was not set. Only units whose value comes from `profile` or one extending it.

    ConfigError when the variable is read only at start.
    """
    variable = known().get(env)
    if variable is None or not variable.live:
        raise ConfigError("not_live", f"{env} is read at start.", "Run `pdctl deploy` to restart with it.")
    name = variable.name
    ours = [u for u in ctx.fleet.units() if not is_foreign(u)]
    units = {u.name: u for u in ours if variable.read_by(u.role) and _uses(ctx, u, profile)}

    def post(unit: str) -> None:
        value = float(engine_env(ctx.fleet, units[unit])[env].value)
        admin.post(ctx, units[unit].url, "timeouts", {name: value}, timeout=QUICK)

    found = fan_out(units, post)
    return {unit: r.message if isinstance(r, PdctlError) else "" for unit, r in found.items()}


def _uses(ctx: Context, unit: Engine | Router, profile: str) -> bool:
    return profile in load_profile(ctx.fleet.paths.profiles, unit.profile).chain
