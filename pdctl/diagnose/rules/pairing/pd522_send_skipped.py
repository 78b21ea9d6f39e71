"""PD522: a prefill skipped a send because the block had left its cache."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD522", "a send was skipped: its block was evicted", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The prefix cache evicted a block before the asynchronous sender came to it; decode waits for ever.

    What it looks like: "Couldn't find the requested block in the reuse tree" on the context server, caught
    and logged; decode's threads stand in checkGenTransferStatus on a future; no error reaches anybody.

    What else it could be: without that line on the prefill the transport is the suspect. A decode that is
    full has requests running.

    What to do: disable block reuse (enable_block_reuse: false) or take a build that pins blocks until they
    are sent, and bound the receive with kv_transfer_timeout_ms. Restart the stuck decode.
    """
    events = facts.events("trtllm.block_evicted")
    if not events:
        return
    names = writers(events)
    waiting = facts.events("trtllm.waits_receive")
    stuck = [
        f"{v.name}: a thread stands in {frame}"
        for v in facts.engines
        for s in v.traces.stacks
        for frame in s.frames
        if "checkGenTransferStatus" in frame
    ]
    reuse = [
        f"{n}: {key}={value}"
        for n in names
        if (p := facts.party(n))
        for key, value in p.traces.settings.items()
        if "block_reuse" in key
    ]
    decodes = [v.name for v in facts.engines if v.role == "decode"]
    yield rule.finding(
        listed(names),
        f"{listed(names)} skipped sends because the block had been evicted from its reuse tree before the "
        "sender ran; decode waits for them for ever.",
        [*quoted(events), *quoted(waiting, 1), *stuck[:2], *reuse],
        "set enable_block_reuse: false on the prefill, then restart the waiting decode",
        touches=[*names, *decodes],
        since=since(events),
    )
