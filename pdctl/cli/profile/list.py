"""pdctl profile list"""

from __future__ import annotations

import typer

from pdctl.cli.session import session
from pdctl.fleet.profile import load_profile, profile_names
from pdctl.render.profile import show_list
from pdctl.render.table import show_json


def command(ctx: typer.Context) -> None:
    """The fleet's profiles and the units that use them."""
    s = session(ctx)
    fleet = s.fleet()
    profiles = [load_profile(fleet.paths.profiles, n) for n in profile_names(fleet.paths.profiles)]
    users = {p.name: [u.name for u in fleet.units() if u.profile == p.name] for p in profiles}
    if s.json:
        rows = [{"name": p.name, "description": p.description, "used_by": users[p.name]} for p in profiles]
        show_json({"schema": 1, "profiles": rows})
    else:
        show_list(profiles, users)
