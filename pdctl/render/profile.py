"""Profiles as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdctl.fleet.profile import Profile, Value
from pdctl.flows.compare.differences import Comparison
from pdctl.render.table import show_table


def show_list(profiles: Sequence[Profile], users: Mapping[str, Sequence[str]]) -> None:
    rows = [
        (p.name, " > ".join(p.chain[1:]) or None, ", ".join(users[p.name]) or None, p.description)
        for p in profiles
    ]
    show_table(("profile", "extends", "used by", "what for"), rows)


def show_profile(profile: Profile) -> None:
    rows = [
        (v.env, v.shown, v.side, v.profile, set_by(v), verified(v), v.reason) for v in profile.values.values()
    ]
    columns = ("variable", "value", "side", "from", "set", "verified", "reason")
    show_table(columns, rows, profile.description)


def set_by(value: Value) -> str | None:
    """Who set it last and when; None for a value that came with the file."""
    return f"{value.date} by {value.author}" if value.author or value.date else None


def verified(value: Value) -> str:
    """When it was seen to fire on this fleet; no, that another value was, or that a test alone saw it."""
    record = value.verified
    if record is None:
        return "no; by a test" if value.proved_by else "no"
    return record.at if value.is_verified else f"no ({record.value} was, {record.at})"


def show_comparison(found: Comparison) -> None:
    units = any(d.unit for d in found.rows)
    rows = [(*((d.unit,) if units else ()), d.name, d.one, d.other) for d in found.rows]
    if rows:
        show_table((*(("unit",) if units else ()), "variable", found.one, found.other), rows)
    else:
        print(f"{found.one} and {found.other} hold the same values.")
    for note in found.notes:
        print(note)


def values_document(profile: Profile) -> dict[str, object]:
    return {
        "description": profile.description,
        "values": {
            v.env: {
                "value": v.shown,
                "side": v.side,
                "reason": v.reason,
                "origin": v.origin,
                "author": v.author or None,
                "date": v.date or None,
                "secret": v.file or None,
                "is_verified": v.is_verified,
                "verified": v.verified.model_dump() if v.verified else None,
                "proved_by": v.proved_by or None,
            }
            for v in profile.values.values()
        },
    }
