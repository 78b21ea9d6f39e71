"""Where drills may be played: on a fleet whose profiles say so, or whose operator says so twice."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.model import Engine, Fleet
from pdctl.fleet.profile import load_profile


def need_drillable(fleet: Fleet, really: bool) -> None:
    """ConfigError when a profile of the fleet's engines is not marked drillable and nobody insists."""
    names = dict.fromkeys(engine.profile for engine in fleet.engines())
    plain = [name for name in names if not load_profile(fleet.paths.profiles, name).drillable]
    if plain and not really:
        said = ", ".join(plain)
        raise ConfigError(
            "not_drillable",
            f"{fleet.name} runs with profile {said}, which is not marked drillable: its traffic may matter.",
            "Put `drillable = true` into the profile, or add --yes-really.",
        )


def edge_of(fleet: Fleet, on: str) -> tuple[Engine, Engine, Engine | None]:
    """(prefill, decode, the engine asked for): the first edge, or the first one of engine `on`."""
    chosen = fleet.engine(on) if on else None
    for prefill, decode in fleet.edges():
        if chosen is None or chosen.name in (prefill.name, decode.name):
            return prefill, decode, chosen
    who = chosen.name if chosen else fleet.name
    raise ConfigError("no_edge", f"{who} has no edge from a prefill to a decode.")
