"""pdctl profile list"""

from __future__ import annotations

import typer

from pdctl.cli.session import session
from pdctl.errors import ConfigError
from pdctl.exits import Exit
from pdctl.fleet.profile import load_profile, profile_names
from pdctl.render.profile import show_list
from pdctl.render.table import show_json


def command(ctx: typer.Context) -> Exit:
    """The fleet's profiles and the units that use them."""
    s = session(ctx)
    fleet = s.fleet()
    profiles, broken = [], {}
    for name in profile_names(fleet.paths.profiles):
        try:
            profiles.append(load_profile(fleet.paths.profiles, name))
        except ConfigError as error:
            broken[name] = error.message
    users = {p.name: [u.name for u in fleet.units() if u.profile == p.name] for p in profiles}
    if s.json:
        rows = [{"name": p.name, "description": p.description, "used_by": users[p.name]} for p in profiles]
        show_json({"schema": 1, "profiles": rows, "broken": broken})
    else:
        show_list(profiles, users)
        for name, why in broken.items():
            print(f"{name} is left out: {why} See `pdctl profile check {name}`.")
    return Exit.USAGE if broken else Exit.OK
