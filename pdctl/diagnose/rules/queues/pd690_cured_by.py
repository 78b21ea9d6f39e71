"""PD690: somebody changed one setting and the trouble ended."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.facts import Change, Facts
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.trials import told

_MEANS = {
    "NCCL_P2P_DISABLE": "direct access between GPUs is broken there (ACS, IOMMU or topology)",
    "NCCL_IB_DISABLE": "NCCL's path over InfiniBand or RoCE is broken",
    "NCCL_SHM_DISABLE": "shared memory between ranks is too small or apart",
    "NCCL_NVLS_ENABLE": "NVLink SHARP of NCCL is broken there",
    "NCCL_CUMEM_ENABLE": "NCCL's cuMem allocation does not fit there",
    "NCCL_SOCKET_IFNAME": "NCCL took an interface that does not reach the peers",
    "GLOO_SOCKET_IFNAME": "gloo took an interface that does not reach the peers",
    "UCX_TLS": "a transport that UCX chose is broken there",
    "UCX_NET_DEVICES": "UCX took a device that does not reach the peers",
    "enforce_eager": "a captured graph or compiled kernel is at fault",
    "disable_custom_all_reduce": "the engine's own all-reduce is broken on this topology",
    "enable_prefix_caching": "reused prefixes are at fault",
    "disable_radix_cache": "reused prefixes are at fault",
    "attention_backend": "the attention backend is at fault",
    "kv_cache_dtype": "the type of the KV cache is at fault",
}


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _cure(facts: Facts) -> Change | None:
    """One that ended it, when no other did."""
    found = [c for c in facts.changes if c.cured and c.what in ("setting", "upgraded", "deployed")]
    return found[0] if len({(c.name, c.value) for c in found}) == 1 else None


@rule("PD690", "one change cured it", Severity.ERROR, ["changes"], fallback=True)
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """With one setting changed, and nothing else, the trouble ended: what it switched off is at fault.

    What it looks like: somebody tried changes one at a time and told what came of each.

    What else it could be: a restart comes with every change and may be what cured it: change it back once.
    A rule that knows the mechanism behind the setting leads.

    What to do: leave the change in place, and mend or report what it switched off.
    """
    change = _cure(facts)
    if change is None:
        return
    value = f"{change.name}={change.value}" if change.value else change.name or change.what
    means = next((m for n, m in _MEANS.items() if _plain(change.name).lower() == n.lower()), "")
    names = [change.party] if change.party else [e.name for e in facts.engines]
    yield rule.finding(
        change.party or "fleet",
        f"{value} ended the trouble" + (f": {means}." if means else ": what it changes is at fault."),
        [told(c) for c in facts.changes],
        f"keep {value}, and change it back once to be sure that it was no restart",
        touches=names,
        since=change.at,
    )
