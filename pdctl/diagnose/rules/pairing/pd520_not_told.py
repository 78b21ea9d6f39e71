"""PD520: one side failed a room and the other waited for its timer, because nobody told it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rooms import Failure, Kind, failures
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import count, span

_NEAR = 5.0  # seconds between the error and the begin of the wait, when no room id is shared


def _cause(own: Sequence[Failure], waited: Failure) -> Failure | None:
    """The prefill's error that `waited` waited out: by room, else by time."""
    same = [f for f in own if f.room and f.room == waited.room]
    if same:
        return same[0]
    began = waited.began
    near = [f for f in own if f.at is not None and began is not None and abs(f.at - began) <= _NEAR]
    return near[0] if near and not (near[0].room and waited.room) else None


def _pairs(facts: Facts, side: EngineView, other: EngineView) -> list[tuple[Failure, Failure]]:
    waits = [f for f in failures(facts, other.name) if f.kind is Kind.TIMEOUT and f.seconds]
    own = [f for f in failures(facts, side.name) if f.kind in (Kind.OWN, Kind.LOST_PEER)]
    found = [(cause, w) for w in waits if (cause := _cause(own, w)) is not None]
    return [(c, w) for c, w in found if c.at is None or w.at is None or w.at - c.at > 2.0]


@rule("PD520", "the other side was not told of a failure", Severity.ERROR, ["logs"], echo_of=["PD510"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A room failed on one side with an error of its own; the other side waited for its whole timer.

    What it looks like: timeouts at exactly the waiting timer (300 s by default on SGLang decode), and the
    same room, or the same moment that the wait began, has an exception in the peer's log. NIXL backends do
    not send the failure over; Mooncake and MORI do.

    What else it could be: no exception on the peer means that it hung or the network swallowed it. Timeouts
    with decode at its cap are capacity (PD630).

    What to do: mend the error in the prefill's log: that is the cause. The long wait is the second fault;
    newer builds send the failure. Lower the waiting timer meanwhile.
    """
    for prefill, decode in facts.edges():
        for side, other in ((prefill, decode), (decode, prefill)):
            pairs = _pairs(facts, side, other)
            if not pairs:
                continue
            causes = list({c.event.where: c.event for c, _ in pairs}.values())
            waits = [w.event for _, w in pairs]
            timer = pairs[0][1].seconds
            yield rule.finding(
                f"{prefill.name} -> {decode.name}",
                f"{side.name} failed {count(len(causes), 'transfer')} with an error of its own and "
                f"{other.name} was never told: it waited {span(timer)} for its timer. The cause is the error "
                f"on {side.name}.",
                [*quoted(causes), *quoted(waits, 1)],
                f"pdctl logs {side.name}",
                touches=[side.name, other.name],
                since=since(causes),
            )
