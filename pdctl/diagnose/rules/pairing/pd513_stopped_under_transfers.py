"""PD513: a peer was stopped on purpose while transfers were under way."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rooms import Kind, failures
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.starts import foreign, stopped
from pdctl.diagnose.words import span

_WITHIN = 60.0  # a failure so soon after the stop is of the stop


def _first_failure(facts: Facts, view: EngineView, at: float) -> tuple[float, list[str]] | None:
    """(seconds after `at`, lines) of the first thing that went wrong on `view`, None when nothing did."""
    found = [
        f
        for f in failures(facts, view.name)
        if f.at is not None and -2.0 <= f.at - at <= _WITHIN and f.kind not in (Kind.ECHO, Kind.ABORT)
    ]
    ended = [f"{view.name} ended with exit code {view.traces.ended}"] if view.traces.ended else []
    if not found and not ended:
        return None
    after = (found[0].at or at) - at if found else 0.0
    return max(0.0, after), [*ended, *quoted([f.event for f in found])]


@rule(
    "PD513", "stopped with transfers under way", Severity.ERROR, ["engine.reach"], echo_of=["PD510", "PD511"]
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An engine was asked to stop, and its peer failed or crashed in the middle of a transfer with it.

    What it looks like: SIGTERM or a deploy on one side, seconds later remote disconnects, failed pulls or
    an exit on the other. The engine tears its memory down without waiting for the transfers out of it.

    What else it could be: a peer that died by itself left no SIGTERM and has an exit code. Failures that go
    on after it came back are a stale pair (PD510).

    What to do: drain at the router first and stop the engine when its transfers are done; a grace period
    longer than the longest transfer. `pdctl restart --co CELL` does both.
    """
    for prefill, decode in facts.edges():
        for gone, left in ((prefill, decode), (decode, prefill)):
            if not foreign(gone):
                continue
            for at, words in stopped(facts, gone):
                failed = _first_failure(facts, left, at) if at is not None else None
                # A stop that the log shows needs no failure line of a peer that crashed.
                if failed is None or at is None:
                    continue
                after, lines = failed
                yield rule.finding(
                    f"{prefill.name} -> {decode.name}",
                    f"{gone.name} was stopped on purpose with transfers under way, and {left.name} failed "
                    f"{span(after)} later: a planned stop without a drain, not a fault of {left.name}.",
                    [words, *lines],
                    f"pdctl restart --co {prefill.member.cell}",
                    touches=[gone.name, left.name],
                    since=at,
                )
                break
