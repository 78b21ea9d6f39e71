"""Where two sides differ, value by value, with every secret as ***."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdctl.facts.probes.process import OURS
from pdctl.fleet.catalogue import other_names
from pdctl.fleet.catalogue.find import family_of
from pdctl.fleet.profile import Profile, Value
from pdctl.fleet.secret import MASK, is_secret
from pdctl.flows.compare.operand import resolve
from pdctl.flows.compare.side import Environ, Side, same
from pdctl.flows.context import Context

_DIGEST = "secret sha256:"
_WHOLE = "(the unit)"


@dataclass(frozen=True)
class Difference:
    """`unit` is "" between profiles. A value is None where it is not set."""

    unit: str
    name: str
    one: str | None
    other: str | None


@dataclass(frozen=True)
class Comparison:
    one: str
    other: str
    rows: tuple[Difference, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, object]:
        rows = [{"unit": d.unit or None, "name": d.name, "one": d.one, "other": d.other} for d in self.rows]
        return {"one": self.one, "other": self.other, "differences": rows, "notes": list(self.notes)}


def compare(ctx: Context, one: str, other: str) -> Comparison:
    """ConfigError and PdctlError as `resolve`."""
    left, right = resolve(ctx, one), resolve(ctx, other)
    if left.profile is not None and right.profile is not None:
        rows = tuple(between_profiles(left.profile, right.profile))
    else:
        rows = tuple(_between_units(ctx, left, right))
    return Comparison(one, other, rows, tuple(dict.fromkeys((*left.notes, *right.notes))))


def between_profiles(one: Profile, other: Profile) -> Iterator[Difference]:
    """A secret is told by the file that holds it."""
    for name in sorted({*one.values, *other.values}):
        mine, theirs = one.values.get(name), other.values.get(name)
        if _of(mine) != _of(theirs):
            yield Difference("", name, _word(mine), _word(theirs))


def _of(value: Value | None) -> tuple[str, str] | None:
    return None if value is None else (value.file, value.value)


def _word(value: Value | None) -> str | None:
    if value is None:
        return None
    return f"{value.shown} of {value.file}" if value.secret else value.shown


def _between_units(ctx: Context, left: Side, right: Side) -> Iterator[Difference]:
    if left.only and right.only:
        mine, theirs = (next(iter(side.units.values())).in_force for side in (left, right))
        yield from _between("", mine, theirs, left, right)
        return
    named = next((side for side in (left, right) if side.only), None)
    for unit in named.units if named else dict.fromkeys([*left.units, *right.units]):
        role = (left.units.get(unit) or right.units[unit]).role
        one, other = (side.held(ctx.fleet, unit, role) for side in (left, right))
        if one is None or other is None:
            yield Difference(unit, _WHOLE, *("not there" if e is None else "there" for e in (one, other)))
        else:
            yield from _between(unit, one, other, left, right)


def _between(unit: str, one: Environ, other: Environ, left: Side, right: Side) -> Iterator[Difference]:
    for name in sorted({*one, *other}):
        mine, theirs = one.get(name), other.get(name)
        if _told(name, left, right) and not same(mine, theirs):
            hide = name in left.secret or name in right.secret
            yield Difference(unit, name, _masked(name, mine, hide), _masked(name, theirs, hide))


def _told(name: str, left: Side, right: Side) -> bool:
    """Whether both sides can tell of it: a process of some variables only, a profile not of what pdctl itself
    gives a unit."""
    if (left.running or right.running) and not name.startswith(OURS):
        return False
    profile = left.profile or right.profile
    if profile is None:
        return True
    return name in profile.values or (family_of(name) is not None and name not in other_names())


def _masked(name: str, value: str | None, hide: bool) -> str | None:
    if value is None:
        return None
    return MASK if hide or value.startswith(_DIGEST) or is_secret(name, value) else value
