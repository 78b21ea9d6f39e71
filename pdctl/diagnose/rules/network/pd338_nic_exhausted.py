"""PD338: the NIC has no resource left for another queue."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.endpoints import recovered
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule

# Who takes doorbell pages and queues, by setting or variable -> in words.
_TAKERS = (
    (
        "kv_transfer_config.kv_connector_extra_config.num_threads",
        "NIXL's threads, each with queues of its own",
    ),
    ("NVSHMEM_IB_ENABLE_IBGDA", "NVSHMEM from the GPU (IBGDA)"),
    ("VLLM_ALL2ALL_BACKEND", "expert parallel all-to-all"),
    ("deepep_mode", "expert parallel all-to-all"),
    ("moe_a2a_backend", "expert parallel all-to-all"),
    ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "NVSHMEM's queues a peer"),
)
_FEWER = "num_threads"


@rule("PD338", "the NIC has no queue or doorbell left", Severity.ERROR, ["logs"], echo_of=["PD413"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A NIC has so many doorbell pages (UAR), queue pairs and completion queues, and they are used up.

    What it looks like: a start that ends in "cannot allocate mlx5dv_devx_uar", "alloc UAR failed" or a queue
    pair that "Cannot allocate memory" though the host has plenty. What comes after it names something else:
    NCCL aborted, connect failed. It needs several libraries that use one NIC: NIXL with many threads beside
    NVSHMEM's IBGDA, many engines on one host.

    What else it could be: memory that may not be pinned says memlock or register (PD323).

    What to do: fewer users: NIXL's num_threads (kv_connector_extra_config), engines or peers of one NIC; or
    more room on the NIC: LOG_BAR_SIZE in its firmware (mlxconfig) and a reboot.
    """
    for party in facts.parties:
        events = list(party.traces.of("verbs.exhausted"))
        refused = list(party.traces.of("verbs.no_object"))
        if recovered(facts, events or refused):
            continue  # it came up another way
        if refused and not events:
            yield _refused(rule, party, refused)
        if not events:
            continue
        takers = _takers(party)
        first = (
            f"lower {_FEWER} of NIXL"
            if any(_FEWER in t for t in takers)
            else "fewer threads or engines on the NIC"
        )
        yield rule.finding(
            party.name,
            f"{party.name} gets no {_what(events)} from the NIC any more: they are used up.",
            [*quoted(events), *takers],
            f"{first}, or raise LOG_BAR_SIZE of the NIC (mlxconfig, then reboot)",
            touches=[party.name, party.member.host],
            since=since(events),
        )


def _refused(rule: Rule, party: Party, events: list[Event]) -> Finding:
    """The NIC says no, and not that it is full."""
    first = events[0].values
    device = first.get("device", "a NIC")
    what = {"CQ": "completion queue", "QP": "queue pair", "SRQ": "receive queue"}.get(
        first.get("what", ""), "queue"
    )
    direct = any("gdaki" in e.line or "devx" in e.line for e in events)
    full = Hypothesis(
        f"{device} has no more of them: other engines or libraries hold theirs",
        "count what uses it (rdma resource show); start this engine alone, or with fewer threads and devices",
    )
    lane = Hypothesis(
        "lanes that the GPU drives itself (gdaki, DevX) are not allowed or not known to this NIC's firmware",
        "start it with UCX_TLS=^gdaki (or rc,cuda_copy): does the backend come up? Then update firmware",
    )
    return rule.finding(
        party.name,
        f"{device} refuses {party.name} another {what}.",
        quoted(events),
        f"{lane.test if direct else full.test}",
        touches=[party.name, party.member.host],
        since=since(events),
        hypotheses=(lane, full) if direct else (full, lane),
    )


def _what(events: list[Event]) -> str:
    return "doorbell page (UAR)" if any("uar" in e.line.lower() for e in events) else "queue"


def _takers(party: Party) -> list[str]:
    told = {**party.traces.settings, **party.traces.environ}
    return [f"{party.name}: {name}={told[name]}, {what}" for name, what in _TAKERS if told.get(name)]
