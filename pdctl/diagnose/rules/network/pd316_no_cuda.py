"""PD316: UCX was built without CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed


@rule("PD316", "UCX has no CUDA", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """The UCX that NIXL loaded takes GPU memory for host memory, or lacks its CUDA transports.

    What it looks like: at registration, before any traffic, "memory is detected as host, check that UCX is
    configured with CUDA support", once for each region; or "transports 'cuda_ipc','cuda_copy' are not
    available". KV then takes a wrong and slow way, or transfers fail.

    What else it could be: another UCX version shadows NIXL's own and says so (PD310); a UCX without RDMA uses
    TCP (PD314). A fleet that keeps KV in host memory on purpose shows the first line rightly.

    What to do: take an image whose UCX has CUDA (ucx_info -d lists cuda_copy and cuda_ipc), or rebuild it
    --with-cuda.
    """
    events: list[Event] = [*facts.events("ucx.no_cuda")]
    events += [e for e in facts.events("ucx.no_transport") if "cuda" in e.values["what"]]
    events = [e for e in events if not _host_buffer(facts, e.party)]
    if not events:
        return
    yield rule.finding(
        listed(writers(events)),
        f"UCX of {listed(writers(events))} has no CUDA support: it takes GPU memory for host memory.",
        quoted([*events, *facts.events("nixl.backend_error")]),
        "take an image whose UCX has CUDA (ucx_info -d lists cuda_copy), or rebuild it --with-cuda",
        touches=partners(facts, writers(events)),
        since=since(events),
    )


def _host_buffer(facts: Facts, name: str) -> bool:
    """KV that is kept in host memory on purpose."""
    party = facts.party(name)
    told = party.traces.settings if party else {}
    return told.get("kv_transfer_config.kv_buffer_device", "") == "cpu" or told.get("device", "") == "cpu"
