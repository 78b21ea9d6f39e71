"""The variables and launch arguments of engines, routers and their libraries, as data.

pdctl checks values without importing an engine. The data is `profiles/catalogue/*.toml`: one file a family,
read when it is first asked for. `known()` is the bundled engine's own, `find` answers for every family.
"""

from __future__ import annotations

from pdctl.fleet.catalogue.engine import deadline_order, known, no_profile, other_names, unit_problem
from pdctl.fleet.catalogue.variable import Setting, Variable, side_applies

__all__ = [
    "Setting",
    "Variable",
    "deadline_order",
    "known",
    "no_profile",
    "other_names",
    "side_applies",
    "unit_problem",
]
