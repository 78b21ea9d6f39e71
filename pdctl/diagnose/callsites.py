"""Where the ranks of one engine stand when their stacks are taken: in one collective, or apart; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from pdctl.adapters.traces import Stack, Traces

_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|ncclDevKernel|ncclKernel", re.I
)
_PAIR = re.compile(r"^(?:i?send|i?recv)\w* ")
# Frames of libraries: the call site is the first frame outside of them.
_LIBRARY = re.compile(
    r"torch/|torch\.|c10d|nccl|gloo|libc|pthread|threading\.py|selectors\.py|triton/(?:compiler|runtime)|\.so\b"
)
_MAIN = re.compile(r"main", re.I)
# A connector that waits for KV inside a step.
_RECEIVE = re.compile(
    r"(?i)\b(?:recv|receive|wait_for|start_load)_?(?:tensor|kv|layer|blocks?)\w*\b.*(?:connector|kv_transfer|p2p)"
)


@dataclass(frozen=True)
class Site:
    """`collective` is the frame that waits, "" when it is in none; `place` the code that called it.

    `neighbour`: it waits for one other rank, in a send or a receive; which rank is odd that does not say.
    """

    collective: str
    place: str
    neighbour: bool = False


def site(stack: Stack) -> Site:
    """Where one thread is. Line numbers stay: two calls in one function are two sites."""
    waits = next((f for f in stack.frames if _COLLECTIVE.search(f.split(" (")[0]) and _LIBRARY.search(f)), "")
    outside = [f for f in stack.frames if not _LIBRARY.search(f)]
    callers = [f for f in outside if f != waits]
    pair = not waits and any(_PAIR.search(f) and _LIBRARY.search(f) for f in stack.frames)
    return Site(waits, callers[0] if callers else (outside or stack.frames)[0], pair)


def mains(traces: Traces) -> list[Stack]:
    """The main thread of each process, its first one where none is named."""
    threads: dict[str, list[Stack]] = defaultdict(list)
    for stack in traces.stacks:
        threads[stack.process].append(stack)
    return [next((s for s in stacks if _MAIN.search(s.thread)), stacks[0]) for stacks in threads.values()]


def sites(traces: Traces) -> dict[Site, list[str]]:
    """Site -> processes there, by their main threads."""
    found: dict[Site, list[str]] = defaultdict(list)
    for stack in mains(traces):
        found[site(stack)].append(stack.process)
    return dict(found)


_RANK = re.compile(r"(?i)\b(?:tp|dp|pp|ep|rank)_?\d|scheduler|worker")
_IDLE = re.compile(r"(?i)\b(?:poll|select|epoll_wait|recv_pyobj|recv_requests|sleep|accept)\b")


def together(traces: Traces) -> tuple[Site, list[Stack]] | None:
    """Where all ranks stand, two or more, when it is one place and no wait for work; None otherwise."""
    stacks = mains(traces)
    ranks = [s for s in stacks if _RANK.search(s.process)] or stacks
    places = {site(s) for s in ranks}
    if len(ranks) < 2 or len(places) != 1 or _IDLE.search(ranks[0].frames[0]):
        return None
    return places.pop(), ranks


def receiving(traces: Traces) -> str:
    """The frame in which a thread waits for KV of its peer; "" when none does, or no stacks were taken."""
    return next((f for s in traces.stacks for f in s.frames if _RECEIVE.search(f)), "")
