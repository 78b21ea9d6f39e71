"""PD342: two engines on one host cannot open each other's GPU memory, and KV takes the long way."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.evidence import quoted, since, writers
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.pairs import partners
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.words import listed

_NAMESPACE = Hypothesis(
    "the containers have PID namespaces of their own: a handle names a process that the other does not see",
    "start both with --pid=host (or --pid=container:NAME; hostPID in a pod): does UCX show cuda_ipc?",
)
_VISIBLE = Hypothesis(
    "each container sees only its own GPU", "give both containers both GPUs, and CUDA_VISIBLE_DEVICES inside"
)
_NO_LINK = Hypothesis("these GPUs have no way to each other", "nvidia-smi topo -p2p r on the host")


@rule("PD342", "GPU memory is not shared between engines", Severity.WARNING, ["logs"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """Prefill and decode of one host could hand KV over by CUDA IPC, opening the handle fails, TCP is used.

    What it looks like: every answer is right and slow: transfers of hundreds of megabytes a second where
    there is NVLink. UCX at level debug says that a handle could not be opened ("invalid device context",
    "invalid argument", "pid namespace") and shows software emulation over tcp.

    What else it could be: engines on different hosts have no CUDA IPC. Where transfers fail instead, it is
    the lanes (PD315, PD316).

    What to do: let both containers share PID and IPC namespaces and see each other's GPU (--pid, --ipc=host,
    both devices), then look at UCX's lanes again.
    """
    lines = facts.events("ucx.no_ipc")
    slow = [e for e in facts.events("ucx.software") if "tcp" in e.line]
    if not lines:
        return
    names = partners(facts, writers(lines))
    views = [e for e in facts.engines if e.name in names]
    apart = [v for v in views if _contained(v) and not v.traces.settings.get("pid")]
    sure = len(apart) > 1
    yield rule.finding(
        listed(writers(lines)),
        f"{listed(writers(lines))} cannot open the GPU memory of its peer on the same host"
        + (": the containers do not share the PID namespace" if sure else "")
        + ("; KV goes over TCP." if slow else "."),
        [*quoted(lines), *quoted(slow, 1), *(f"{v.name} is a container without --pid" for v in apart)],
        "start both containers with --pid=host or a shared PID namespace, --ipc=host, and both GPUs",
        touches=names,
        since=since(lines),
        hypotheses=() if sure else (_NAMESPACE, _VISIBLE, _NO_LINK),
    )


def _contained(view: EngineView) -> bool:
    """Its command starts a container."""
    told = view.traces.settings
    return "gpus" in told or "runtime" in told or "ipc" in told
