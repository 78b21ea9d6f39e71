"""Every kind of problem over one profile, or over all that a fleet uses."""

from __future__ import annotations

from pdctl.errors import ConfigError
from pdctl.fleet.check import chain, live, proof, risky, secrets, sides, unknown, values
from pdctl.fleet.check.finding import Finding, merged
from pdctl.fleet.check.live import Given
from pdctl.fleet.check.scope import Scope, fleet_scope, profile_scope
from pdctl.fleet.model import Fleet
from pdctl.fleet.profile import load_profile


def check_profiles(
    fleet: Fleet, name: str | None = None, deployed: str = "", given: Given | None = None
) -> list[Finding]:
    """Worst first. `deployed` is when a deploy last went through, `given` what it gave (live.problems).

    ConfigError when there is no profile `name`.
    """
    used = dict.fromkeys(u.profile for u in fleet.units())
    if name is not None and not (fleet.paths.profiles / f"{name}.toml").exists():
        load_profile(fleet.paths.profiles, name)
    found: list[Finding] = []
    broken: set[str] = set()
    for each in dict.fromkeys([*used, *([name] if name else [])]):
        try:
            load_profile(fleet.paths.profiles, each)
        except ConfigError as error:
            broken.add(each)
            if name in (None, each):
                found += _unreadable(each, error)
    if name is None or name not in broken:
        scope = _scope(fleet, name, frozenset(broken))
        for kind in (unknown, values, sides, chain, risky):
            found += kind.problems(scope)
        found += secrets.problems(fleet, scope)
        found += proof.problems(scope, fleet.name)
        found += live.problems(fleet, scope, deployed, given or {})
    return merged(found)


def _scope(fleet: Fleet, name: str | None, broken: frozenset[str]) -> Scope:
    whole = fleet_scope(fleet, broken)
    if name is None:
        return whole
    mine = whole.with_profile(name)
    return mine if mine.units else profile_scope(load_profile(fleet.paths.profiles, name))


def _unreadable(profile: str, error: ConfigError) -> list[Finding]:
    """Problems that keep a profile from being loaded at all, each with its own place where it has one."""
    do = "Mend it; nothing else of this profile can be checked before."
    made = []
    for detail in error.details or [error.message]:
        place, colon, says = detail.partition(": ")
        at = place if colon and place.rpartition(":")[2].isdigit() else ""
        says = (says if at else detail).removesuffix(".")
        made.append(Finding("error", "file", profile, says, do, at))
    return made
