"""PD810: the two sides run different versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose import pairs
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts, OtherView, RouterView
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_FAILED = (
    "nixl.hash_mismatch",
    "pair.",
    "room.kv_failed",
    "sglang.room_failed",
    "vllm.transfer_failed",
    "vllm.waiting_remote",
    "nixl.backend_error",
    "nixl.bad_metadata",
    "net.no_bootstrap",
)

# What a server says that cannot read what the other release wrote.
_PROTOCOL = re.compile(
    r"unexpected keyword argument|missing \d+ required|KeyError|[Vv]alidationError|msgspec|msgpack|"
    r"not enough values to unpack|too many values to unpack|NIXL_ERR_MISMATCH"
)


@rule("PD810", "versions differ within a pair", Severity.ERROR, [])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Prefill and decode, or a sidecar and its engine, are of different releases.

    What it looks like: from a rolling update on, handshakes are refused ("compatibility hash mismatch") or
    requests wait for remote KV for ever although the network is fine: the two sides speak different
    generations of the connector's protocol.

    What else it could be: different versions that exchange KV well are only worth knowing. With equal
    versions look at what differs in settings: PD112, PD119.

    What to do: bring all parts of a cell to one release and restart them together.
    """
    for prefill, decode in pairs.pairs(facts):
        found = pairs.versions(prefill, decode)
        if found:
            lines = [d.told(prefill.name, decode.name) for d in found]
            yield _finding(rule, facts, [prefill.name, decode.name], lines)
    beside: list[RouterView | OtherView] = [*_routers(facts), *facts.others]
    for sidecar in beside:
        lines = [line for e in facts.engines for line in _beside(sidecar, e)]
        if lines:
            yield _finding(rule, facts, [sidecar.name, *(e.name for e in facts.engines)], lines)


def _finding(rule: Rule, facts: Facts, names: list[str], lines: list[str]) -> Finding:
    failed = [e for e in facts.events(*_FAILED) if e.party in names]
    failed += [e for e in facts.events("process.raised") if e.party in names and _PROTOCOL.search(e.line)]
    return rule.finding(
        listed(names[:2]),
        f"{listed(names)} are of different releases: {lines[0]}"
        + ("; they do not understand each other." if failed else "."),
        [*lines, *quoted(failed)],
        "bring them to one release, then: pdctl restart --co CELL",
        touches=names,
        since=since(failed),
        severity=Severity.ERROR if failed else Severity.INFO,
    )


def _routers(facts: Facts) -> list[RouterView]:
    return [facts.router] if isinstance(facts.router, RouterView) else []


def _beside(sidecar: RouterView | OtherView, engine: EngineView) -> list[str]:
    """What a sidecar says it was built for (an entry of the engine's kind, or "connector") and is not."""
    mine, theirs = sidecar.traces.versions, engine.traces.versions
    kind = engine.traces.kind
    pairs_of = [(n, mine[n], theirs[n]) for n in mine if n in theirs]
    if kind in mine and engine.traces.version:
        pairs_of.append((kind, mine[kind], engine.traces.version))
    return [
        f"{n}: {sidecar.name} {left}, {engine.name} {right}" for n, left, right in pairs_of if left != right
    ]
