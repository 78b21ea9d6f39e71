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

    What to do: a UCX_TLS without CUDA's transports goes first; a scheduler or an image may have put it in.
    Else take an image whose UCX has CUDA (ucx_info -d lists cuda_copy and cuda_ipc), or rebuild it with it.
    """
    events: list[Event] = [*facts.events("ucx.no_cuda")]
    events += [e for e in facts.events("ucx.no_transport") if "cuda" in e.values["what"]]
    events = [e for e in events if not _host_buffer(facts, e.party)]
    if not events:
        return
    names = writers(events)
    pins = [pin for name in names if (pin := _pin(facts, name))]
    why = f"{pins[0]} leaves its CUDA transports out" if pins else "it takes GPU memory for host memory"
    yield rule.finding(
        listed(names),
        f"UCX of {listed(names)} has no CUDA support: {why}.",
        [
            *quoted([*events, *facts.events("nixl.backend_error")]),
            *(f"{listed(names)}: {p}" for p in pins[:1]),
        ],
        "unset UCX_TLS, or add cuda_copy and cuda_ipc to it; see who sets it (scheduler, image, host's MPI)"
        if pins
        else "take an image whose UCX has CUDA (ucx_info -d lists cuda_copy), or rebuild it --with-cuda",
        touches=partners(facts, names),
        since=since(events),
    )


def _pin(facts: Facts, name: str) -> str:
    """The list of transports, without any of CUDA's, that its environment or its log shows."""
    party = facts.party(name)
    if party is None:
        return ""
    told = [e.values["value"] for e in party.traces.of("ucx.tls")]
    value = party.traces.environ.get("UCX_TLS") or (told[0] if told else "")
    open_ = not value or value.startswith("^") or "all" in value.split(",") or "cuda" in value
    return "" if open_ else f"UCX_TLS={value}"


def _host_buffer(facts: Facts, name: str) -> bool:
    """KV that is kept in host memory on purpose."""
    party = facts.party(name)
    told = party.traces.settings if party else {}
    return told.get("kv_transfer_config.kv_buffer_device", "") == "cpu" or told.get("device", "") == "cpu"
