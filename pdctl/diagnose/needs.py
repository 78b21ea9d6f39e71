"""The facts that rules declare they need, and who lacks which; a rule without its facts is skipped aloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdctl.diagnose.facts import Facts
from pdctl.facts.missing import Missing


@dataclass(frozen=True)
class Lack:
    """`subject` lacks a fact, None for the whole fleet; `total` when nobody has it."""

    subject: str | None
    reason: str
    total: bool


def _lacks(having: dict[str, object]) -> list[Lack]:
    missing = {name: fact for name, fact in having.items() if isinstance(fact, Missing)}
    total = bool(missing) and len(missing) == len(having)
    return [Lack(name, fact.reason, total) for name, fact in missing.items()]


def _profile(facts: Facts) -> list[Lack]:
    return _lacks({m.name: m.expected for m in facts.members()})


def _units(facts: Facts) -> list[Lack]:
    return _lacks({m.name: m.unit for m in facts.members()})


def _states(facts: Facts) -> list[Lack]:
    return _lacks({e.name: e.state for e in facts.engines})


def _requests(facts: Facts) -> list[Lack]:
    return _lacks({"router": facts.requests})


def _of_hosts(subject: str) -> Callable[[Facts], list[Lack]]:
    return lambda facts: _lacks({h.name: getattr(h, subject) for h in facts.hosts})


def _always(facts: Facts) -> list[Lack]:
    return []


NEEDS: dict[str, Callable[[Facts], list[Lack]]] = {
    "profile": _profile,
    "units": _units,
    "host.clock": _of_hosts("clock"),
    "host.disk": _of_hosts("disk"),
    "host.ports": _of_hosts("ports"),
    "host.reach": _of_hosts("reach"),
    "engine.reach": _always,
    "engine.state": _states,
    "router.requests": _requests,
}
