"""A host's documents, by the tool that printed them, as its traces; pure."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.adapters.hosttexts import gpus, mounts, numbers, processes, rdma, sockets
from pdctl.adapters.traces import Event, HostTraces

_LIMITS = ("ulimit", "limits")


def host_traces(documents: Iterable[tuple[str, str]], events: Iterable[Event], at: float) -> HostTraces:
    """`documents` are (tool, what it printed at `at`). Each is searched for what its form shows, so that one
    text with the output of several tools is understood too.
    """
    texts = list(documents)
    listings = [text for tool, text in texts if tool in ("ps", "top")]
    found: dict[str, float] = {}
    for tool, text in texts:
        found |= numbers.memory(text) | numbers.clock(text) | numbers.processors(text)
        memlock = numbers.locked(text, bare=tool in _LIMITS)
        found |= {} if memlock is None else {"memlock": memlock}
    return HostTraces(
        events=tuple(events),
        gpus=tuple(g for _, text in texts for g in gpus.gpus(text)),
        gpu_processes=tuple(p for _, text in texts for p in gpus.processes(text)),
        mounts=tuple(m for _, text in texts for m in mounts.mounts(text)),
        sockets=tuple(s for _, text in texts for s in sockets.sockets(text)),
        rdma=rdma.merged([r for _, text in texts for r in rdma.rdma(text)]),
        processes=tuple(p for text in listings for p in processes.processes(text, at)),
        interfaces=tuple(i for _, text in texts for i in sockets.interfaces(text)),
        numbers=found,
        tools=frozenset(tool for tool, _ in texts),
    )
