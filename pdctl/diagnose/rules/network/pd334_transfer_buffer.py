"""PD334: the buffer that KV is sent through has no room."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rooms import failures
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count

_OFTEN = 5  # tries that a busy buffer needs too
_REMEDY = (
    "make it larger than the longest prompt's KV: pd_buffer_size, kv_buffer_size, mem_pool_size_gb, "
    "max_tokens_in_buffer"
)
_HELD = (
    Hypothesis(
        "it is smaller than the KV of one prompt",
        "KV bytes per token x tokens of the longest prompt against the buffer's size; send a short prompt",
    ),
    Hypothesis(
        "the other side does not give back what it received",
        "does a short prompt hang too, and is the other side's log silent? Then restart the pair once",
    ),
)


def _stuck(party: Party) -> bool:
    """It still tried when it last spoke."""
    lines = list(party.traces.of("transfer.no_buffer"))
    done = list(party.traces.of("net.ready"))
    return len(lines) >= _OFTEN and not any(e.order > lines[-1].order for e in done)


@rule("PD334", "transfer buffer has no room", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """KV goes through a buffer of a fixed size, and a prompt does not fit into what is free of it.

    What it looks like: "Failed to allocate memory object, retrying" without end and requests that hang
    (LMCache), "ValueError: Insufficient memory" in tensor_memory_pool (P2P NCCL), or "bufferCoverTargetNum …
    may use dynamic buffer which will fail" and then transfers that do, or "Cannot assign cache transfer
    buffer" again and again (TensorRT-LLM).

    What else it could be: a few retries under load are backpressure. Where both sides are idle and it still
    has no room, somebody does not give back.

    What to do: make the buffer larger than the KV of the longest prompt on both sides.
    """
    for party in facts.parties:
        held = list(party.traces.of("transfer.no_buffer"))
        small = list(party.traces.of("trtllm.small_buffer"))
        burst = list(party.traces.of("transfer.pool_full"))
        failed = [found.event for found in failures(facts)]
        if not _stuck(party) and not (small and failed) and not burst:
            continue
        lines = small or burst or held
        what = "smaller than a prompt" if small else f"full in {count(len(burst or held), 'try', 'tries')}"
        yield rule.finding(
            party.name,
            f"The buffer through which {party.name} moves KV is {what}.",
            [*quoted(lines, 2), *quoted(failed, 1)],
            _REMEDY,
            touches=[party.name, *partners(facts, [party.name])],
            since=since(lines),
            hypotheses=() if small else _HELD,
        )
