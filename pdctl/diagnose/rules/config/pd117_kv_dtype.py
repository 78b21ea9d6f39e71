"""PD117: KV dtypes differ."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule


@rule("PD117", "KV dtypes of prefill and decode differ", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """KV is stored as another number format, or in another order, on the two sides.

    What it looks like: transfers fail at registration or handshake; with engines that do not check, they
    succeed and the text is nonsense from the first token.

    What else it could be: nonsense with equal dtypes is another difference of the pair (PD114) or damage.

    What to do: set the same --kv-cache-dtype (and VLLM_KV_CACHE_LAYOUT) on both sides.
    """
    events = facts.events("pair.kv_dtype")
    names = ("kv_dtype", "kv_cache_layout", "VLLM_KV_CACHE_LAYOUT")
    told = False
    for prefill, decode in pairs.pairs(facts):
        found = [d for d in pairs.differences(prefill, decode) if d.name in names and _matters(d)]
        if (
            not found
            or any(prefill.traces.of("nixl.hash_mismatch"))
            or any(decode.traces.of("nixl.hash_mismatch"))
        ):
            continue
        told = True
        lines = [d.told(prefill.name, decode.name) for d in found]
        yield rule.finding(
            f"{prefill.name} -> {decode.name}",
            f"{prefill.name} and {decode.name} store KV differently: {lines[0]}.",
            [*lines, *quoted(events)],
            "set the same --kv-cache-dtype on both sides, then: pdctl restart --co CELL",
            touches=[prefill.name, decode.name],
            since=since(events),
        )
    if events and not told:
        yield rule.finding(
            " and ".join(writers(events)),
            "prefill and decode say that their KV dtypes differ.",
            quoted(events),
            "set the same --kv-cache-dtype on both sides, then: pdctl restart --co CELL",
            touches=writers(events),
            since=since(events),
        )


def _matters(difference: pairs.Difference) -> bool:
    """ "auto" is the model's own dtype, which the other side may name."""
    return not ({difference.prefill, difference.decode} & {"auto"} and _full(difference))


def _full(difference: pairs.Difference) -> bool:
    return not any("8" in v or "4" in v for v in (difference.prefill, difference.decode))
