"""PD328: a transfer engine's batches time out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule(
    "PD328",
    "transfer batches time out",
    Severity.ERROR,
    ["logs"],
    echo_of=["PD118", "PD311", "PD312", "PD319", "PD320", "PD321", "PD322", "PD323", "PD327"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Batches of a transfer engine are not completed within its own limit, and no line says why.

    What it looks like: "Failed to complete transfers after 60 seconds for batch". The host that was started
    first works, because its warm-up is from itself to itself; every later one fails.

    What else it could be: a protocol that differs says NotSupportedTransport (PD118). Errors of queue pairs,
    GIDs or memory have their own lines.

    What to do: use the same protocol everywhere, measure the way with ib_write_bw -d DEV, and see that every
    host reaches the metadata server.
    """
    events = facts.events("mooncake.batch_timeout", "mooncake.no_metadata")
    if not events:
        return
    bad, late = writers(events), _late(events)
    good = [p.name for p in facts.engines if p.name not in bad]
    yield rule.finding(
        listed(bad),
        f"transfer batches of {listed(bad)} time out" + (f"; {listed(good)} shows none." if good else "."),
        quoted(events),
        late[0].test
        if late
        else "use one protocol everywhere; ib_write_bw -d DEV between hosts; curl the metadata server there",
        touches=partners(facts, bad),
        since=since(events),
        hypotheses=(
            *late,
            *_sharded(facts, bad),
            Hypothesis("the protocol differs between hosts", "grep 'installTransport' in every log"),
            Hypothesis("the RDMA way between hosts is broken", "ib_write_bw -d DEV between two hosts"),
            Hypothesis("the metadata server is not reached", "curl its URL from every host"),
        ),
    )


def _late(events: Sequence[Event]) -> list[Hypothesis]:
    timer = next((e.values["timer"] for e in events if e.values.get("timer")), "")
    if not timer:
        return []
    return [
        Hypothesis(
            "the peer answers later than its timeout under load, or is wedged",
            f"one request alone: does it go through? Then raise {timer} once; if not, read the peer's log",
        )
    ]


def _sharded(facts: Facts, bad: Sequence[str]) -> list[Hypothesis]:
    """Between unequal TP sizes a page goes in a piece for each head."""
    differ = [
        d
        for prefill, decode in pairs.pairs(facts)
        if prefill.name in bad or decode.name in bad
        for d in pairs.of_kind(pairs.differences(prefill, decode), "sharding")
    ]
    if not differ:
        return []
    return [
        Hypothesis(
            f"the sides are sharded differently ({pairs.named(differ[:2])}): pages go in small pieces",
            "the same load with equal TP on both sides: does it hold?",
        )
    ]
