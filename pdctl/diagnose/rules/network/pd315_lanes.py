"""PD315: UCX chose a lane that fails, since an upgrade."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Rule, Severity, rule
from pdctl.diagnose.words import listed

_LIBRARY = re.compile(r"(?i)nixl|ucx")
_FAILED = (
    "nixl.backend_error",
    "room.kv_failed",
    "vllm.transfer_failed",
    "sglang.room_failed",
    "nixl.remote_disconnect",
)


@rule("PD315", "UCX takes other lanes for some GPU pairs", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Between some GPUs UCX uses cuda_ipc and between others the NIC, and transfers of the latter fail.

    What it looks like: one pair of engines on a host works and another fails for ever. UCX's cfg# lines show
    cuda_ipc and cuda_copy for the pair on one NUMA node, and only rc_mlx5 for the one across nodes. It began
    with another NIXL or UCX.

    What else it could be: a pair that failed after a restart of one side is stale; GPUs that cannot reach
    each other at all (topology, IOMMU) fail with every version.

    What to do: go back to the NIXL and UCX of the last good start (pin nixl), or set UCX_TLS so that the pair
    uses cuda_ipc.
    """
    lanes = facts.events("ucx.lanes")
    over_ipc = [e for e in lanes if "cuda_ipc" in e.values["lanes"]]
    without = [
        e for e in lanes if "cuda" not in e.values["lanes"] and re.search(r"rc_|dc_|tcp/", e.values["lanes"])
    ]
    failed = [e for e in facts.events(*_FAILED) if e.party in {w.party for w in without}]
    bad = [t for t in facts.tallies if t.failed and not t.ok]
    good = [t for t in facts.tallies if t.ok and not t.failed]
    if not over_ipc or not without or not (failed or bad):
        return
    changed = [line for p in facts.parties for line in _changed(p)]
    changed += [
        f"{c.name or c.what} {c.value}".strip() for c in facts.changes if _LIBRARY.search(c.name + c.value)
    ]
    if not changed and not (bad and good):
        return
    names = list(dict.fromkeys([e.party for e in without] + [n for t in bad for n in (t.prefill, t.decode)]))
    yield rule.finding(
        listed(names),
        f"UCX uses the NIC instead of cuda_ipc for {listed(names)} and transfers there fail"
        + (f"; since the last good start {changed[0]}." if changed else "."),
        [*changed, *quoted([without[0], over_ipc[0], *failed])],
        "pin NIXL and UCX to the versions of the last good start, or set UCX_TLS",
        touches=names,
        since=since(failed),
    )


def _changed(party: Party) -> list[str]:
    former, now = party.traces.former, {**party.traces.settings, **party.traces.versions}
    return [
        f"{name} of {party.name} went from {former[name]} to {now[name]}"
        for name in former
        if _LIBRARY.search(name) and name in now and former[name] != now[name] and not name.isupper()
    ]
