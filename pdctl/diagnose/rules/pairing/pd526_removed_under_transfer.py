"""PD526: a request was removed while its KV was still to be handed over."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.lives import died
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.progress import stall
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count

_MANY = 3


@rule("PD526", "removed under its transfer", Severity.WARNING, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A server forgot a request, by an end or a timer, while its KV was still being read or written.

    What it looks like: "storeContextBlocks: Can not find sequence for request …" again and again
    (TensorRT-LLM), or "Terminating … due to KV cache transfer timeout" and then a crash in native code or a
    unit that hangs under memory pressure.

    What else it could be: a block that the reuse tree gave away is PD522. A timer that ends requests of a
    decode that is full is backpressure (PD630): ask why the transfer took so long.

    What to do: take a build that keeps the request until its transfer is over. Until then set
    kv_transfer_timeout_ms above the longest wait, or leave it out, and give the side more KV.
    """
    for party in facts.parties:
        gone = list(party.traces.of("trtllm.sequence_gone"))
        timed = list(party.traces.of("trtllm.timer_ended"))
        ended = died(party)
        if len(gone) < _MANY and not (timed and ended):
            continue
        lines = [*gone[:3], *timed[:2]]
        crash = list(party.traces.of("process.signal")) if ended else []
        yield rule.finding(
            party.name,
            f"{party.name} removed requests while their KV was still being handed over "
            f"({count(len(gone) or len(timed), 'line')})" + ("; then it ended." if ended else "."),
            quoted([*lines, *crash], 4),
            "raise kv_transfer_timeout_ms or leave it out, and take a build that holds requests until "
            "their transfer is over",
            touches=[party.name, *partners(facts, [party.name])],
            since=since(lines),
            severity=Severity.ERROR if ended or stall(party.traces) else None,
            hypotheses=[
                *(
                    [
                        Hypothesis(
                            "its timer freed pages that the peer still read: use after free",
                            "the same load without kv_transfer_timeout_ms: does it stay up?",
                        )
                    ]
                    if timed
                    else []
                ),
                Hypothesis(
                    "an end of the request and its transfer race each other in this build",
                    "does the number of these lines follow the load? Try a newer build with the same load",
                ),
                Hypothesis(
                    "the other side is full and fetches late",
                    "its running requests and free KV when the first of these lines was written",
                ),
            ],
        )
