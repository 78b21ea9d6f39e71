"""PD616: prefills release KV that nobody fetched: decode never pulled it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.expiries import expiries
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.loads import at_cap, idle
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import count, listed

_MANY = 3
_LEASE, _SLACK = 30.0, 15.0


def _between(facts: Facts, unread: Sequence[Event], decodes: Sequence[str]) -> list[str]:
    """Restarts of the router or of decode while the KV was kept."""
    first = since(unread)
    holds = [float(e.values["seconds"]) for e in unread if e.values.get("seconds")]
    begin = 0.0 if first is None else first - max(holds, default=_LEASE) - _SLACK
    last = max((e.at for e in unread if e.at is not None), default=float("inf"))
    routers = [p.name for p in facts.parties if p.role == "router"]
    return [
        f"{c.party} was {c.what} while the KV was kept for requests that it had in hand"
        for c in facts.changes
        if c.party in (*routers, *decodes) and c.at is not None and begin <= c.at <= last
    ]


def _pushed(facts: Facts) -> list[Hypothesis]:
    """Where the prefill pushes, decode's wait does not tell it that the KV is still wanted."""
    names = [e.traces.settings.get("kv_transfer_config.kv_connector", "") for e in facts.engines]
    if not any("Push" in name for name in names):
        return []
    return [
        Hypothesis(
            "the push connector does not renew leases of requests that wait for their push",
            "raise kv_lease_duration above the longest wait: do they pass? Then take a build that renews",
        )
    ]


def _doubts(who: str) -> list[Hypothesis]:
    return [
        Hypothesis(
            f"{who} was full and came too late",
            f"was {who} at its cap when the leases began (running, KV usage, waiting)?",
        ),
        Hypothesis(
            f"{who} cannot reach the prefill's side channel or its memory",
            "grep decode's log of that time for handshake and NIXL errors; send one request to the idle pair",
        ),
        Hypothesis(
            "the request never reached decode: aborted at the proxy or refused",
            "look up one of the ids in the proxy's and in decode's log",
        ),
    ]


@rule(
    "PD616",
    "KV expired unread",
    Severity.ERROR,
    ["logs"],
    echo_of=["PD510", "PD202", "PD615", "PD610", "PD512"],
)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """KV was released because its lease or timer ended and no decode worker had read it.

    What it looks like: "Releasing expired KV blocks for request … retrieved by 0 … worker(s)", a wave of
    them; the prefill work for these requests is wasted. A KeyError in update_from_kv_xfer_finished after the
    wave is the engine tripping over its own expiry: secondary.

    What else it could be: decode that is dead, hung or cut off did not pull; decode at its cap came too
    late; a proxy that lost the request never sent it. The same ids read later are corruption (PD617).

    What to do: ask first why decode did not pull: its state and log when the lease began. Raise
    kv_lease_duration only when decode was alive and full.
    """
    found = expiries(facts)
    if not found.unread or found.read_after or found.only_children:
        return
    names = writers(found.unread)
    decodes = [e for e in facts.engines if e.role == "decode"]
    full = [f"{d.name} is at its cap: {why}" for d in decodes if (why := at_cap(d.traces))]
    calm = [f"{d.name} computes nothing" for d in decodes if idle(d.traces)]
    between = _between(facts, found.unread, [d.name for d in decodes])
    crash = [e for e in facts.events("vllm.finish_unknown", "vllm.key_error") if e.party in names]
    who = listed(d.name for d in decodes) if decodes else "decode"
    busy = any((d.traces.last("waiting") or 0) > 0 for d in decodes)
    sure = bool(between or (full and busy))
    why = (
        f"; {between[0]}"
        if between
        else f"; {who} is at its cap and the lease is shorter than its queue"
        if sure
        else ""
    )
    after = "; its crash on a KeyError afterwards is secondary" if crash else ""
    grave = len(found.ids) >= _MANY or crash
    yield rule.finding(
        listed(names),
        f"{listed(names)} released KV of {count(len(found.ids), 'request')} that no decode worker had read: "
        f"{who} did not pull it in time{why}{after}.",
        [*quoted(list(found.unread)), *quoted(crash, 1), *between, *full, *calm],
        f"pdctl logs {decodes[0].name}" if decodes else "read decode's log of that time",
        touches=[*names, *(d.name for d in decodes)],
        since=since(found.unread),
        severity=Severity.ERROR if grave else Severity.WARNING,
        hypotheses=() if sure else [*_pushed(facts), *(_doubts(who)[1:] if calm else _doubts(who))],
    )
