"""PD681: pages are given to another request while a transfer still writes into them."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.quality import parties, symptoms
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

_ABORTS = ("sglang.aborted", "vllm.aborted", "vllm.late_read")


def _aborts(facts: Facts) -> float:
    counted = sum(p.traces.moved("aborted_total") or 0 for p in facts.engines)
    return counted or len(facts.events(*_ABORTS))


@rule("PD681", "pages reused under a transfer", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Decode frees the pages of an aborted request while the prefill still writes into them.

    What it looks like: wrong answers under load whose rate follows the rate of aborts; none without aborts.
    A read after the lease's end, or a room number in the wrong place, is the same from the other side.

    What else it could be: wrong answers without aborts are transfer, kernels or graphs (PD684, PD683).
    Quality that falls with uptime is PD682.

    What to do: upgrade to a version that holds aborted pages until the writer is quiet
    (SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1 where it exists); until then abort less: raise
    clients' timeouts.
    """
    wrong, aborts = symptoms(facts), _aborts(facts)
    late = facts.events("vllm.late_read", "answer.wrong_room")
    if not wrong or not aborts or facts.events("answer.bytes_differ"):
        return
    hurt = facts.events("answer.differs")
    if any(c.cured for c in facts.changes):
        return
    names = parties(facts, wrong)
    tied = bool(late) or aborts >= 3
    yield rule.finding(
        names[0] if names else "decode",
        "Answers are wrong while requests are aborted: pages are reused under transfers that still write.",
        [*quoted(hurt, 3), *quoted(late, 2), f"aborts: {aborts:g}", *quoted(facts.events(*_ABORTS), 2)],
        "hold aborted pages (SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1) or upgrade",
        touches=names,
        since=since(wrong),
        hypotheses=[]
        if tied
        else [
            Hypothesis("pages are reused under a writer", "the same load without aborts: are answers right?"),
            Hypothesis("transfer or kernels corrupt KV", "hash KV of one request on both sides"),
        ],
    )
