"""PD525: failures at exactly a timer's value name the timer, and with it the side that waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.loads import at_cap, idle
from pdctl.diagnose.rooms import Failure, Kind, failures
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import started
from pdctl.diagnose.timers import words
from pdctl.diagnose.words import count, listed, span


def _state(views: Sequence[EngineView]) -> tuple[list[str], bool, bool]:
    """(evidence, the peer is full, the peer is idle) of the side that was waited for."""
    full = [f"{v.name} is at its cap: {why}" for v in views if (why := at_cap(v.traces))]
    calm = [f"{v.name} computes nothing" for v in views if idle(v.traces)]
    return full + calm, bool(full), bool(calm) and len(calm) == len(views)


_SHORT = 5.0  # seconds; a shorter wait is no timer that an operator sets
_FULL = Hypothesis(
    "decode has no place for the room: backpressure",
    "lower the request rate by half: do the timeouts stop?",
)
_BROKEN = Hypothesis(
    "the other side never heard of the room: a broken link, a dead listener thread, a wrong address",
    "send one request to the idle pair; if it waits for the timer too, look at the address it was given",
)
_YOUNG = Hypothesis(
    "the other side was not up yet when the wait began",
    "hold traffic until both sides are ready and a real request has passed: do the timeouts stop?",
)
_HUNG = Hypothesis("the other side hangs", "py-spy dump its scheduler twice, 10 s apart: do the stacks move?")


@rule(
    "PD525",
    "requests ended by a timer",
    Severity.ERROR,
    ["logs"],
    echo_of=["PD510", "PD211", "PD202", "PD306", "PD440", "PD441", "PD442", "PD443", "PD444", "PD445"],
    fallback=True,
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Rooms end at exactly the value of one timer: the line names who waited, not why.

    What it looks like: "timed out after 300.0s in KVPoll.Bootstrapping" on the prefill (it waited for
    decode), "WaitingForInput" on decode (it waited for the prefill's KV), KV leases of 30 or 480 s that
    nobody fetched. The failures all show the same number of seconds.

    What else it could be: a peer at its cap is backpressure (PD630), an idle one a broken link. An exception
    of the peer when the wait began is PD520.

    What to do: look at the side that was waited for, when the wait began, not when it ended. Raise the timer
    only after decode was seen to be full.
    """
    groups: dict[tuple[str, float, str], list[Failure]] = defaultdict(list)
    for one in failures(facts):
        expired = one.event.sign == "vllm.kv_expired"  # PD616 says more of these
        if one.kind is Kind.TIMEOUT and one.seconds and one.seconds >= _SHORT and not expired:
            groups[(one.party, one.seconds, one.state)].append(one)
    for (name, seconds, state), found in groups.items():
        view = facts.engine(name)
        if view is None:
            continue
        timer = words(view, seconds, state)
        roles = ("decode",) if view.role == "prefill" else ("prefill",)
        peers = [e for e in facts.engines if e.role in roles]
        began = min((f.began for f in found if f.began is not None), default=None)
        lines, full, calm = _state(peers)
        late = [p for p in peers if began is not None and (started(facts, p) or 0.0) > began]
        lines += [f"{p.name} started {span((started(facts, p) or 0.0) - began)} later" for p in late if began]
        hints = [_FULL, _HUNG] if full else [_BROKEN, _HUNG] if calm else [_BROKEN, _FULL, _HUNG]
        yield rule.finding(
            name,
            f"{count(len(found), 'request')} of {name} ended at exactly {seconds:g} s, {timer}: "
            f"{name} waited for {listed(p.name for p in peers) if peers else 'its peer'}.",
            [*quoted([f.event for f in found]), *lines],
            f"pdctl logs {peers[0].name}" if peers else f"pdctl logs {name}",
            touches=[name, *(p.name for p in peers)],
            since=since([f.event for f in found]),
            hypotheses=[_YOUNG, *hints[:2]] if late else hints,
        )
