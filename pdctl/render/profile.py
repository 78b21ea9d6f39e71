"""Profiles as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdctl.fleet.profile import Profile, Value
from pdctl.render.table import show_table


def show_list(profiles: Sequence[Profile], users: Mapping[str, Sequence[str]]) -> None:
    rows = [
        (p.name, " > ".join(p.chain[1:]) or None, ", ".join(users[p.name]) or None, p.description)
        for p in profiles
    ]
    show_table(("profile", "extends", "used by", "what for"), rows)


def show_profile(profile: Profile) -> None:
    rows = [(v.env, v.value, v.side, v.profile, verified(v), v.reason) for v in profile.values.values()]
    show_table(("variable", "value", "side", "from", "verified", "reason"), rows, profile.description)


def verified(value: Value) -> str:
    """Yes with its date, no, or that another value was."""
    record = value.verified
    if record is None:
        return "no"
    return record.at if value.is_verified else f"no ({record.value} was, {record.at})"


def show_diff(one: str, other: str, rows: Sequence[tuple[str, str | None, str | None]]) -> None:
    if rows:
        show_table(("variable", one, other), rows)
    else:
        print(f"{one} and {other} hold the same values.")


def values_document(profile: Profile) -> dict[str, object]:
    return {
        "description": profile.description,
        "values": {
            v.env: {
                "value": v.value,
                "side": v.side,
                "reason": v.reason,
                "origin": v.origin,
                "is_verified": v.is_verified,
                "verified": v.verified.model_dump() if v.verified else None,
            }
            for v in profile.values.values()
        },
    }
