"""PD608: requests that ended with an error a moment ago."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pdctl.adapters.picture import Ended
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, some, span
from pdctl.facts.missing import known

_LATELY = 300.0  # seconds
_NOW = 60.0
_ROW = 3  # failures one after another, with nothing that went well between them
# The client's own end or mistake.
_CLIENT = (
    *("aborted", "client_stalled", "invalid_request", "context_length_exceeded", "model_not_found"),
    *("not_supported", "invalid_json", "body_too_large", "body_timeout"),
)
# For want of a place, or by a stop: worth a note, and no sign of a fault.
_FULL = (
    *("draining", "queue_timeout", "no_pair", "pages_refused", "prealloc_timeout", "held_too_long"),
    *("router_pair_timeout", "router_stopped"),
)


@rule(
    "PD608", "requests failed a moment ago", Severity.INFO, ["router.requests"], role="effect", fallback=True
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The router remembers requests that ended with an error, also when everything is well again.

    What it looks like: engines answer and move, and some clients got an error in the last minutes. When
    nothing has gone well since the last three of them it is a warning.

    What else it could be: what ended them may be over: the restart of an engine, a broken link. A code says
    which deadline or loss it was; clients' own mistakes and places that were taken are not counted.

    What to do: follow one of them by its id or room through the logs, `pdctl logs NAME`.
    """
    state = facts.router_state
    if not known(state) or not state.ended:
        return
    ended = sorted(state.ended, key=lambda e: e.at)
    failed = [e for e in ended if _lost(e) and 0 <= state.now - e.at <= _LATELY]
    if not failed:
        return
    last = failed[-1]
    row = _row(ended)
    codes = ", ".join(f"{n} {code}" for code, n in Counter(e.code for e in failed).most_common())
    yield rule.finding(
        "router" if not known(facts.router) else facts.router.name,
        f"{count(len(failed), 'request')} failed in the last 5 min ({codes}), "
        f"the newest {span(state.now - last.at)} ago.",
        some([_told(e, state.now) for e in reversed(failed)]),
        "grep an id or room in the engines' logs: pdctl logs NAME",
        touches=[e.name for e in facts.engines],
        since=failed[0].at,
        severity=Severity.WARNING if row >= _ROW and state.now - last.at <= _NOW else None,
    )


def _lost(ended: Ended) -> bool:
    return ended.how == "failed" and ended.code not in _CLIENT


def _row(ended: Sequence[Ended]) -> int:
    """How many failed since a request went well."""
    number = 0
    for each in reversed(ended):
        if each.how == "done":
            break
        number += _lost(each) and each.code not in _FULL
    return number


def _told(ended: Ended, now: float) -> str:
    room = f" (room {ended.room})" if ended.room is not None else ""
    return f"{ended.id}{room}: {ended.code} after {span(ended.seconds)}, {span(now - ended.at)} ago"
