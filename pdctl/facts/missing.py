"""A fact that could not be had says why, instead of being None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Missing:
    """`reason` completes the sentence "not known: …"."""

    reason: str

    def __str__(self) -> str:
        return f"not known: {self.reason}"


def known(value: T | Missing) -> TypeGuard[T]:
    """True when `value` is a fact; narrows the type."""
    return not isinstance(value, Missing)
