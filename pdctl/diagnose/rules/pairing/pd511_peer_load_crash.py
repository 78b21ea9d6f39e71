"""PD511: an engine crashed while it took up a peer that came back."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.adapters.traces import Event
from pdctl.diagnose.evidence import quoted, since
from pdctl.diagnose.facts import EngineView, Facts
from pdctl.diagnose.rule import Finding, Hypothesis, Rule, Severity, rule
from pdctl.diagnose.starts import started
from pdctl.diagnose.words import span

_SEGV = (139, -11)
_NEAR = 180.0  # a crash so soon after the peer's start is suspicious without frames too


def _frames(view: EngineView) -> list[str]:
    words = ("loadRemoteMD", "add_remote_agent", "ucp_ep_rkey_unpack")
    return [
        f"{view.name}, stack of {stack.process or stack.thread}: {frame}"
        for stack in view.traces.stacks
        for frame in stack.frames
        if any(word in frame for word in words)
    ]


def _crash(view: EngineView) -> tuple[list[Event], list[str], bool] | None:
    """(lines, frames, whether they show a peer being taken up), None when it did not segfault."""
    faults = list(view.traces.of("peer.segfault"))
    if view.traces.ended not in _SEGV and not faults:
        return None
    loads = list(view.traces.of("peer.load", "peer.modify_failed"))
    frames = _frames(view)
    return [*loads, *faults], frames, bool(loads or frames)


@rule("PD511", "crash while taking up a peer that came back", Severity.ERROR, ["engine.reach"])
def RULE(rule: Rule, facts: Facts) -> Iterator[Finding]:
    """A segmentation fault in the survivor, in the code that loads the metadata of a restarted peer.

    What it looks like: exit 139 or -11, or "Segmentation fault", within moments of the other side's start;
    loadRemoteMD, add_remote_agent or ucp_ep_rkey_unpack in the stack, often after a failed
    mlx5dv_devx_obj_modify with Remote I/O error. Serving and aborts were fine before.

    What else it could be: exit 137 is a kill, nearly always memory. A CUDA fault names cudaError or an Xid.
    A segfault on long prompts without a restart of the peer is another bug.

    What to do: restart the pair as one unit, `pdctl restart --co CELL`, never one leg; use a NIXL newer
    than 1.3.2, which the engine's image pins.
    """
    for view in facts.engines:
        crash = _crash(view)
        if crash is None:
            continue
        lines, frames, loading = crash
        peers = [p for edge in facts.edges() if view in edge for p in edge if p is not view]
        died = since(lines) or facts.at
        starts = {p.name: at for p in peers if (at := started(facts, p)) is not None}
        fresh = [n for n, at in starts.items() if -_NEAR <= died - at <= (1e9 if loading else _NEAR)]
        if not loading and not fresh:
            continue
        told = [f"{n} started {span(max(0.0, died - starts[n]))} before the crash" for n in fresh]
        other = fresh[0] if fresh else "a peer"
        doubt = [
            Hypothesis(
                f"{view.name} crashed as it took up the new life of {other}",
                "coredumpctl info: is loadRemoteMD or add_remote_agent in the stack?",
            ),
            Hypothesis("a fault of its own on this input", "replay the last request on it with no restart"),
        ]
        yield rule.finding(
            view.name,
            f"{view.name} crashed while it took up {other}, which had come back in a new life: "
            "stale UCX endpoints of the old one.",
            [*frames[:2], *quoted(lines), *told],
            f"pdctl restart --co {view.member.cell}",
            touches=[view.name, *fresh],
            since=since(lines),
            hypotheses=() if loading else doubt,
        )
