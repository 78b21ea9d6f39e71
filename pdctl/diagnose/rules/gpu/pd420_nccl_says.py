"""PD420: a collective library failed, and its own warnings say in what."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.lives import died
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

# What is under it, and what ended the rank at its other end.
_NAMED = (
    *("PD321", "PD323", "PD333", "PD336", "PD410", "PD411", "PD412", "PD413", "PD419", "PD452", "PD711"),
    *("PD210", "PD211", "PD212"),
)
_AFTER = 5  # lines: some libraries give the reason behind the error
_REACH = (
    Hypothesis(
        "the node or rank at the other end ended or was never started",
        "the log of the rank at that address in the minute before; does its process live?",
    ),
    Hypothesis(
        "it chose an interface that does not lead there, or a firewall is in between",
        "NCCL_SOCKET_IFNAME=IFACE on every node; nc -zv ADDRESS PORT from this one",
    ),
)
_MEMORY = (
    Hypothesis("a GPU call failed under it: memory or a sick GPU", "nvidia-smi -q; dmesg -T | grep Xid"),
    Hypothesis(
        "P2P between these GPUs does not work", "start once with NCCL_P2P_DISABLE=1; nvidia-smi topo -p2p r"
    ),
)
_SILENT = (
    Hypothesis("NCCL knows why and was not asked", "start it with NCCL_DEBUG=INFO and read its first WARN"),
    Hypothesis(
        "/dev/shm is too small or P2P does not work", "df /dev/shm; start once with NCCL_P2P_DISABLE=1"
    ),
)


def _live(warnings: list[Event]) -> tuple[Hypothesis, ...]:
    if not warnings:
        return _SILENT
    text = " ".join(e.line for e in warnings).lower()
    if any(word in text for word in ("socket", "connect", "closed by", "bootstrap")):
        return _REACH
    return _MEMORY if "cuda" in text or "memory" in text else (*_REACH[:1], *_SILENT[1:])


def _warned(party: Party) -> list[Event]:
    """Warnings of the last life, the first of which is the oldest reason."""
    failed = list(party.traces.of("nccl.failed"))
    lines = list(party.traces.of("nccl.warn"))
    return [e for e in lines if not failed or e.order <= failed[-1].order + _AFTER]


@rule("PD420", "a collective failed", Severity.ERROR, ["logs"], echo_of=_NAMED)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """NCCL, RCCL or HCCL gave up: a connection between ranks, a GPU call or shared memory failed under it.

    What it looks like: "NCCL error: unhandled system error" or "remote process exited"; "NCCL WARN" lines
    above it say which call failed, where NCCL_DEBUG is WARN or more.

    What else it could be: what has a rule of its own comes first: RDMA devices PD333, queue pairs PD321,
    shared memory PD711, links PD410. A timeout without an error is PD446.

    What to do: read the first WARN of all ranks, not the last error; without one, NCCL_DEBUG=INFO and one
    more start.
    """
    for party in facts.parties:
        failed = list(party.traces.of("nccl.failed"))
        if not failed or not died(party):
            continue
        warnings = _warned(party)
        reason = f": {warnings[0].values['what']}" if warnings and warnings[0].values.get("what") else "."
        yield rule.finding(
            party.name,
            f"A collective of {party.name} failed{reason[:200]}",
            [*quoted(warnings), *quoted(failed, 1)],
            f"pdctl logs {party.name}",
            since=since([*warnings, *failed]),
            hypotheses=_live(warnings),
        )
