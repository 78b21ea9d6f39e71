"""PD419: ranks cannot open each other's GPU memory."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import Facts, Party
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_ALLOC = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_REMEDY = "start it with --disable-custom-all-reduce (NCCL reduces instead)"
_NO_P2P = "give every rank all GPUs of its group (one container, --gpus all), or set NCCL_P2P_DISABLE=1"
_LIVE = (
    Hypothesis(
        "the allocator's memory cannot be exported (expandable segments, a memory pool)",
        "start once without PYTORCH_CUDA_ALLOC_CONF",
    ),
    Hypothesis(
        "ranks are on different hosts or in containers that do not see each other's GPU",
        "the same CUDA_VISIBLE_DEVICES and --ipc=host for all ranks of a group?",
    ),
)


def _hosts(party: Party) -> list[str]:
    """Of its ranks, as Ray writes them."""
    return list(dict.fromkeys(e.values["ip"] for e in party.traces.of("start.rank_host")))


@rule("PD419", "ranks cannot share GPU memory", Severity.ERROR, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """An all-reduce that works on its neighbours' memory cannot get or open a CUDA IPC handle.

    What it looks like: "transport/p2p.cc … Cuda failure" of NCCL; or
    "custom_all_reduce.cuh:… 'invalid argument'" or "'invalid resource handle'",
    cudaIpcGetMemHandle or cudaIpcOpenMemHandle, at the start or at graph capture; the worker exits without a
    traceback. TP1 works, and so does --disable-custom-all-reduce.

    What else it could be: a GPU that is lost or full fails in other calls too (PD411, PD222).

    What to do: leave the custom all-reduce out. Memory of expandable segments has no handle, and a handle
    is worth something on one host only.
    """
    for party in facts.parties:
        lines = list(party.traces.of("gpu.no_ipc"))
        if not lines:
            continue
        env, hosts = party.traces.environ, _hosts(party)
        pools = [f"{n}={env[n]}" for n in _ALLOC if "expandable_segments:True" in env.get(n, "")]
        spans = int(party.traces.settings.get("nnodes", "1") or 1) > 1 or len(hosts) > 1
        refused = any("invalid argument" in e.line for e in lines)
        why, nccl = "", "transport/p2p" in lines[0].line
        if pools and refused:
            why = ": memory of expandable segments cannot be shared"
        elif spans and not refused:
            why = (
                f": they are on different hosts ({listed(hosts)})"
                if hosts
                else ": they are on different hosts"
            )
        yield rule.finding(
            party.name,
            f"Ranks of {party.name} cannot open each other's GPU memory{why}.",
            [*pools, *quoted(lines)],
            _NO_P2P if nccl else _REMEDY,
            since=since(lines),
            hypotheses=() if why else tuple(reversed(_LIVE)) if nccl else _LIVE,
        )
