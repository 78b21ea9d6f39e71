"""PD110: page sizes differ and the engines cannot convert."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_FAILED = (
    "pair.handshake",
    "net.thread_died",
    "room.kv_failed",
    "sglang.room_failed",
    "vllm.transfer_failed",
)


@rule("PD110", "page sizes of prefill and decode differ", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Prefill and decode cut KV into pages of different sizes, and this engine cannot write one into the
    other.

    What it looks like: both start well; the first request hangs or fails. The thread that takes peers in may
    end with "Page size mismatch", after which that server answers no peer any more. The attention backend may
    have chosen the size, so that both command lines look the same.

    What else it could be: engines that convert between page sizes log no mismatch. Different TP sizes give
    other shapes with the same page size (PD111), a different KV dtype other bytes (PD117).

    What to do: give both the same --page-size (vLLM: --block-size) and the same attention backend, and
    restart both, because the thread that failed does not come back.
    """
    events = facts.events("pair.page_size")
    if events:
        sizes = {side: events[0].values.get(side, "") for side in ("prefill", "decode")}
        told = f" (prefill {sizes['prefill']}, decode {sizes['decode']})" if all(sizes.values()) else ""
        names = [e.name for e in facts.engines if e.role in ("prefill", "decode")] or writers(events)
        dead = [e for e in facts.events("net.thread_died") if e.party in writers(events)]
        yield rule.finding(
            " and ".join(writers(events)),
            f"prefill and decode have different page sizes{told}: no KV can pass.",
            quoted([*events, *dead]),
            "give both the same --page-size and attention backend, then: pdctl restart --co CELL",
            touches=names,
            since=since(events),
        )
        return
    for prefill, decode in pairs.pairs(facts):
        found = [d for d in pairs.differences(prefill, decode) if d.name == "page_size"]
        failed = [e for v in (prefill, decode) for e in v.traces.of(*_FAILED)]
        if found and failed:
            yield rule.finding(
                f"{prefill.name} -> {decode.name}",
                f"transfers fail and page sizes differ: {found[0].told(prefill.name, decode.name)}.",
                [found[0].told(prefill.name, decode.name), *quoted(failed)],
                "give both the same --page-size and attention backend, then: pdctl restart --co CELL",
                touches=[prefill.name, decode.name],
                since=since(failed),
            )
