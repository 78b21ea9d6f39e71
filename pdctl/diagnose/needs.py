"""The facts that rules declare they need, and who lacks which; a rule without its facts is skipped aloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdctl.adapters.traces import Traces
from pdctl.diagnose.facts import Facts
from pdctl.facts.missing import Missing

NO_LOG, NO_READINGS = "no log", "no metrics and no statistics in its log"
NO_SETTINGS, NO_ENVIRON = "its settings are not shown", "its environment is not shown"
_NO_STACKS, _NO_EXIT = "no stacks were taken", "no exit code"
_NO_KERNEL, _NO_GPU = "no kernel log", "no GPU reading"
_NO_CHANGES = "nobody told what was changed or restarted"
# Usual: nobody has to do anything about it.
QUIET = frozenset(
    [
        *(_NO_STACKS, _NO_EXIT, _NO_KERNEL, _NO_GPU, _NO_CHANGES),
        *("the bundle does not show it", "the bundle shows no router", "the fleet file names no router"),
    ]
)


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


def _of_traces(has: Callable[[Traces], object], why: str) -> Callable[[Facts], list[Lack]]:
    """Of every party whose traces have it not; a fleet without any lacks it as a whole."""

    def lacks(facts: Facts) -> list[Lack]:
        having: dict[str, object] = {
            p.name: p.traces if has(p.traces) else Missing(why) for p in facts.parties
        }
        return _lacks(having) if having else [Lack(None, why, True)]

    return lacks


def _kernel(facts: Facts) -> list[Lack]:
    return _lacks({h.name: h.traces if h.traces.events else Missing(_NO_KERNEL) for h in facts.hosts})


def _gpus(facts: Facts) -> list[Lack]:
    return _lacks({h.name: h.traces if h.traces.gpus else Missing(_NO_GPU) for h in facts.hosts})


def _changes(facts: Facts) -> list[Lack]:
    return [] if facts.changes else [Lack(None, _NO_CHANGES, True)]


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
    "router.state": lambda facts: _lacks({"router": facts.router_state}),
    "router.requests": _requests,
    "logs": _of_traces(lambda t: t.lines, NO_LOG),
    "readings": _of_traces(lambda t: t.readings, NO_READINGS),
    "settings": _of_traces(lambda t: t.settings, NO_SETTINGS),
    "environ": _of_traces(lambda t: t.environ, NO_ENVIRON),
    "stacks": _of_traces(lambda t: t.stacks, _NO_STACKS),
    "exits": _of_traces(lambda t: t.ended is not None, _NO_EXIT),
    "kernel": _kernel,
    "gpus": _gpus,
    "changes": _changes,
}
