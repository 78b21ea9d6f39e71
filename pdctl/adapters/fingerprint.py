"""Whether two engines mean the same by a page of KV."""

from __future__ import annotations

from pdctl.adapters.picture import Engine

_FIELDS = ("model", "dtype", "page_size", "layout", "layers", "kv_heads", "head_dim")


def differences(one: str, left: Engine, other: str, right: Engine) -> list[str]:
    """A line for each thing in which two engines' KV differs; `one` and `other` are their names."""
    return [
        f"{name}: {one} {left.fingerprint[name]}, {other} {right.fingerprint[name]}"
        for name in _FIELDS
        if name in left.fingerprint
        and name in right.fingerprint
        and not _fit(name, left.fingerprint[name], right.fingerprint[name])
    ]


def _fit(name: str, one: str, other: str) -> bool:
    """Equal, or page sizes of which one is a multiple of the other: those are written in parts."""
    if name == "page_size" and one.isdecimal() and other.isdecimal():
        small, large = sorted((int(one), int(other)))
        return small > 0 and large % small == 0
    return one == other
