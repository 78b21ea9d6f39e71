"""PD309: a server tells its peers an address that does not lead to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import addresses, anywhere, endpoint, loopback
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Rule, Severity, rule

_FAILED = (
    "net.refused",
    "net.timed_out",
    "net.no_bootstrap",
    "pair.handshake",
    "sglang.room_failed",
    "room.kv_failed",
    "vllm.waiting_remote",
    "pair.engine_id",
    "pair.waits_remote",
)
_PEER = re.compile(r"(?i)bootstrap|prefill|remote|peer|gloo|rendezvous|c10d|handshake|rank|dist")
_TOLD = ("VLLM_NIXL_SIDE_CHANNEL_HOST", "SGLANG_HOST_IP", "HOST_IP", "VLLM_HOST_IP")


@rule("PD309", "advertises an address that peers cannot use", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Peers on other hosts are given 127.0.0.1 or 0.0.0.0, or the address of a network that they are not in.

    What it looks like: the registered address (rank_ip, remote_host) is loopback, because the host's name
    resolves to it in /etc/hosts, or it is that of another NIC; peers then connect to themselves and are
    refused or time out.

    What else it could be: a listener that is bound to loopback is told apart by `ss` (PD303): here it is
    bound right and announced wrong.

    What to do: set SGLANG_HOST_IP (or SGLANG_LOCAL_IP_NIC), VLLM_HOST_IP or VLLM_NIXL_SIDE_CHANNEL_HOST to
    the address that peers reach, and mend /etc/hosts.
    """
    announced: set[str] = set()
    several = len({p.member.host for p in facts.engines}) > 1
    for party in facts.parties:
        told = [e for e in party.traces.of("net.told") if _wrong(facts, party, e.values["host"], several)]
        named = [
            f"{party.name}: {n}={v}"
            for n in _TOLD
            if (v := party.traces.environ.get(n, ""))
            and (_wrong(facts, party, v, several) or (several and anywhere(v)))
        ]
        named += _left_at_localhost(facts, party, several)
        failed = [e for e in facts.events(*_FAILED) if e.party != party.name]
        loop = [e for e in failed if loopback_in(e)]
        if not (told or named) or not failed:
            continue
        announced |= {e.where for e in failed}
        host = told[0].values["host"] if told else named[0].partition("=")[2] or "localhost"
        yield rule.finding(
            party.name,
            f"{party.name} tells its peers to find it at {host}, which does not lead to it from other hosts.",
            [*named, *quoted([*told[:2], *(loop or failed)])],
            f"set {_variable(named)} to the address that peers reach",
            touches=[party.name, *(e.party for e in failed)],
            since=since(told) or since(failed),
        )
    yield from _to_itself(rule, facts, several, announced)


def _variable(named: list[str]) -> str:
    """The variable that says it wrongly, or not at all."""
    return next((n for n in _TOLD if any(n in line for line in named)), "") or (
        "its host variable (SGLANG_HOST_IP, VLLM_HOST_IP, …)"
    )


def _to_itself(rule: Rule, facts: Facts, several: bool, announced: set[str]) -> Iterator[Finding]:
    """Servers that look for a peer of another host at a loopback address, whoever told them so."""
    for party in facts.parties:
        lost = [
            e
            for e in party.traces.of("net.refused", "net.timed_out")
            if _PEER.search(e.line) and (at := endpoint(e.line)) is not None and loopback(at.host)
        ]
        nodes = party.traces.settings.get("nnodes", "1")
        if not lost or lost[0].where in announced or not (several or nodes not in ("", "1")):
            continue
        yield rule.finding(
            party.name,
            f"{party.name} looks for its peer at {endpoint(lost[0].line)}: it was told a loopback address.",
            quoted(lost),
            "set the peer's host variable to the address that others reach, and mend its name in /etc/hosts",
            since=since(lost),
        )


def _left_at_localhost(facts: Facts, party: Party, several: bool) -> list[str]:
    """vLLM's NIXL connector announces localhost where nobody says another host."""
    told = party.traces.settings.get("kv_transfer_config.kv_connector", "")
    nixl = "Nixl" in told or (not told and any(facts.events("pair.engine_id")))
    variable = "VLLM_NIXL_SIDE_CHANNEL_HOST"
    if not several or not nixl or not party.traces.environ or party.role == "decode":
        return []
    return (
        [] if variable in party.traces.environ else [f"{party.name}: {variable} is not set: it is localhost"]
    )


def loopback_in(event: Event) -> bool:
    return "127.0.0.1" in event.line or "localhost" in event.line


def _wrong(facts: Facts, party: Party, host: str, several: bool) -> bool:
    if loopback(host):
        return several
    known = facts.host(party.member.host)
    others = [a for h in facts.hosts if h.name != party.member.host for a in addresses(h)]
    mine = addresses(known) if known else set()
    if host not in mine or not others or host.count(".") != 3:
        return False
    net = host.rpartition(".")[0]
    shared = {a.rpartition(".")[0] for a in mine} & {a.rpartition(".")[0] for a in others}
    return bool(shared) and net not in shared
