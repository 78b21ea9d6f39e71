"""PD118: the two sides speak different transfer protocols."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.adapters.traces import Traces
from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_NAMES = ("transfer_backend", "kv_transfer_config.kv_connector", "MOONCAKE_PROTOCOL", "protocol")
_FAILED = ("mooncake.", "pair.handshake", "room.kv_failed", "sglang.room_failed", "vllm.transfer_failed")


@rule("PD118", "transfer stacks differ", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Servers that should exchange KV use different backends, connectors or protocols (RDMA here, TCP there).

    What it looks like: "NotSupportedTransport", or batches that time out, between hosts; what a server does
    with itself works, so that the first one started passes its warm-up and every later one fails.

    What else it could be: the same protocol on all sides and batches that time out: the network or the
    metadata server (PD312, PD328).

    What to do: set one protocol and backend everywhere, and restart all.
    """
    by: dict[tuple[str, str], list[str]] = defaultdict(list)
    for party in facts.parties:
        for name, value in _stack(party.traces).items():
            by[name, value].append(party.name)
    differ = {name for name, _ in by if len({v for n, v in by if n == name}) > 1}
    wrong = facts.events("mooncake.unsupported")
    failed = facts.events(*_FAILED)
    lines = [f"{name} {value}: {listed(who)}" for (name, value), who in by.items() if name in differ]
    mixed = any("Multi" in line or "Pd" in line for line in lines)
    if not wrong and not (differ and failed and not mixed):
        return
    if facts.events("nixl.hash_mismatch"):
        return
    yield rule.finding(
        listed(writers(wrong or failed)),
        "servers that exchange KV use different transports"
        + (f": {'; '.join(lines[:3])}." if lines else ": one side does not support the other's."),
        [*lines, *quoted([*wrong, *failed])],
        "set one protocol and backend on every host, then restart all",
        touches=[n for who in by.values() for n in who] or writers(wrong),
        since=since([*wrong, *failed]),
    )


def _stack(traces: Traces) -> dict[str, str]:
    told = {**traces.settings, **traces.environ}
    found = {name: told[name] for name in _NAMES if name in told and told[name] != pairs.UNSET}
    for event in traces.of("mooncake.transport"):
        found["protocol"] = event.values["kind"]
    if "MOONCAKE_PROTOCOL" in found:
        found["protocol"] = found.pop("MOONCAKE_PROTOCOL")
    return found
