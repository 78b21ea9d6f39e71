"""The trace backend: the decode step of a sparse model is free of races, and each planted bug is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
import torch

from kernels.launch import recording
from kernels.ops.paged_decode_attention import kernel as decode
from kernels.ops.splits import SplitPlan, Workspaces
from kernels.streams import MAIN, SerialStreams, Streams, Trace, TraceFault
from kernels.streams.trace import Node

SIDES = ("kv", "compress", "index")


class Cache:
    """What the streams of a step write and the main one reads."""

    def __init__(self) -> None:
        self.window, self.entries, self.index_k = (torch.zeros(16, 4) for _ in range(3))
        self.scratch = {name: torch.zeros(8) for name in (MAIN, *SIDES)}
        self.kept: list[torch.Tensor] = []
        self.out = torch.zeros(4)


def write(x: torch.Tensor, row: torch.Tensor, scratch: torch.Tensor) -> None:
    scratch.fill_(2.0)
    row.copy_(x[0] * scratch[0])


def step(streams: Streams, cache: Cache, at: int, bug: str = "") -> None:
    """One layer: the side streams fill the caches from x, main computes q, joins them and attends."""
    x = torch.full((1, 4), at + 1.0)
    for side in SIDES:
        if not (bug == "no fork" and side == "index"):
            streams.fork(MAIN, side)
    for side, target in zip(SIDES, (cache.window, cache.entries, cache.index_k), strict=True):
        scratch = cache.scratch["kv" if bug == "shared scratch" else side]
        named = [] if bug == "unnamed" else [target[at]]
        work = partial(write, x, target[at], scratch)
        streams.launch(side, f"write {side}", work, reads=[x], writes=[*named, scratch])
    del work
    if bug == "dropped early":
        del x
    q = torch.full((1, 4), -7.0)
    streams.join(MAIN, "kv", "compress")
    if bug not in ("no join", "late join"):
        streams.join(MAIN, "index")
    reads = (cache.window, cache.entries, cache.index_k)
    total = lambda: cache.out.copy_(sum(t[: at + 1].sum(0) for t in reads) + q[0])  # noqa: E731
    streams.launch(MAIN, "attend", total)
    if bug == "late join":
        streams.join(MAIN, "index")
    if bug == "kept":
        cache.kept.append(torch.zeros(3))
    if bug == "host reads":
        float(cache.out[0])
    if bug == "a shape":
        cache.out.nonzero()
    if bug == "host writes":
        cache.out.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))


def traced(bug: str = "", steps: int = 2) -> Trace:
    trace, cache = Trace(), Cache()
    for at in range(steps):
        trace.capture(lambda: step(trace, cache, at, bug))  # noqa: B023
    return trace


def test_the_step_has_no_race_and_the_same_answer_as_in_order() -> None:
    trace = traced()
    trace.check()
    assert {node.stream for node in trace.nodes} == {MAIN, *SIDES}
    caches = [Cache(), Cache()]
    for streams, cache in zip((Trace(), SerialStreams()), caches, strict=True):
        for at in range(3):
            step(streams, cache, at)
    assert torch.equal(caches[0].out, caches[1].out) and caches[0].out.any()


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("no fork", "write index on stream index, which was not forked from the captured main"),
        ("no join", "the capture ends with work of stream index that is not joined"),
        (
            "late join",
            r"what sum\S* of attend \(main\) uses is overwritten by \S+ of write index \(index\)",
        ),
        (
            "dropped early",
            r"memory of full \(main\), that (kv|index|compress) uses, is given to full \(main\)",
        ),
        (
            "shared scratch",
            r"what fill_\S* of write kv \(kv\) uses is also written by fill_\S* of write compress",
        ),
        ("unnamed", r"copy_ of write kv \(kv\) does not name what it writes"),
        ("kept", "memory of zeros was allocated inside the capture and is kept"),
        ("host reads", "_local_scalar_dense cannot be captured: its value is read on the host"),
        ("a shape", "nonzero cannot be captured: the shape of what it returns is a value"),
        ("host writes", "lift_fresh cannot be captured: it is made of values of the host"),
    ],
)
def test_the_planted_bug_is_seen(bug: str, said: str) -> None:
    with pytest.raises(TraceFault, match=said):
        traced(bug).check()


def test_one_step_that_is_not_joined_is_seen_too() -> None:
    with pytest.raises(TraceFault, match="not joined"):
        traced("no join", steps=1)


def test_without_overlap_everything_is_of_one_stream_and_no_race() -> None:
    trace, cache = Trace(overlap=False), Cache()
    trace.capture(lambda: step(trace, cache, 0, "late join"))
    trace.check()
    assert {node.stream for node in trace.nodes} == {MAIN}


def test_memory_whose_address_a_graph_holds_is_not_given_back() -> None:
    trace, buffers = Trace(), [torch.zeros(8)]
    trace.capture(lambda: buffers[0].fill_(1.0))
    buffers.clear()
    trace.launch(MAIN, "next", lambda: torch.zeros(1))
    with pytest.raises(TraceFault, match="is given back, whose address a graph holds"):
        trace.check()


def test_a_capture_does_not_wait_for_what_was_not_captured() -> None:
    trace = Trace()
    trace.launch("side", "before", lambda: torch.zeros(1))
    event = trace.record("side")
    with pytest.raises(TraceFault, match="waits in a capture"):
        trace.capture(lambda: trace.wait(MAIN, event))


@pytest.mark.parametrize("joined", [False, True])
def test_memory_of_a_side_stream_is_its_again_once_main_is_done_with_it(joined: bool) -> None:
    """What a launch returns is of its stream: its next user must know of everybody's work on it."""
    trace = Trace()
    with trace.watch():
        made = trace.launch("side", "make", lambda: torch.zeros(8))
        trace.join(MAIN, "side")
        made.sum()
        del made
        if joined:
            trace.fork(MAIN, "side")
        trace.launch("side", "again", lambda: torch.zeros(8))
    assert bool(trace._problems) != joined


CACHE = torch.zeros(8, 4)


@pytest.mark.parametrize(
    ("work", "races"),
    [
        (lambda: CACHE[4:].sum(), False),
        (lambda: CACHE[3:5].sum(), True),
        (lambda: CACHE[:, 1].sum(), True),
        (lambda: CACHE.index_select(0, torch.tensor([5, 7])), False),
        (lambda: CACHE.index_select(0, torch.tensor([5, 3])), True),
        (lambda: CACHE[torch.tensor([4, 6])], False),
        (lambda: CACHE.index_copy_(0, torch.tensor([2]), torch.ones(1, 4)), True),
        (lambda: CACHE.as_strided((2, 4), (8, 1), 16).sum(), False),
        (lambda: CACHE.t(), False),
    ],
)
def test_bytes_meet_only_where_they_overlap(work: Callable[[], object], races: bool) -> None:
    trace = Trace()
    trace.launch("a", "first", lambda: CACHE[:4].zero_())
    trace.launch("b", "second", work)
    assert bool(trace.races()) == races


@pytest.mark.parametrize("shared", [False, True])
def test_decode_on_two_streams_needs_a_workspace_each(shared: bool) -> None:
    """The kernels' own launches, recorded: what they read and write is not said a second time here."""
    pool, q = torch.zeros(8, 2, 1, 2, 4, 8), torch.zeros(1, 4, 8)
    works = Workspaces(SplitPlan.of(max_batch=1, heads=4, kv_heads=2, dim=8, max_tokens=64), "cpu")
    trace = Trace()
    for stream in ("a", "b"):
        plan = decode.plan_decode(pool, [[1, 2]], [7], works.of("a" if shared else stream))
        with recording() as made:
            decode.paged_decode_attention(q, pool, 0, plan, 1.0)
        trace.take(stream, made)
    assert [node.name for node in trace.nodes] == ["_attend", "_merge"] * 2
    races = trace.races()
    assert bool(races) == shared
    assert not shared or "_attend (a) uses is also written by _attend (b), unordered" in races[0]


def orders(nodes: list[Node], rng: random.Random) -> list[Node]:
    """A schedule that a GPU may choose: any order that keeps the trace's."""
    left, done = list(nodes), []
    while left:
        ready = [n for n in left if not any(m is not n and m.before(n) for m in left)]
        done.append(rng.choice(ready))
        left.remove(done[-1])
    return done


def test_every_schedule_of_a_step_without_races_reads_what_was_written_last() -> None:
    """What the clocks promise, played: in any allowed order each read follows the same write."""
    nodes = traced().nodes

    def sources(order: list[Node]) -> set[tuple[int, object, int]]:
        last: dict[object, int] = {}
        seen = set()
        for node in order:
            places = [
                [(s.memory, int(at)) for s in spans for at in s.runs[:, 0]]
                for spans in (node.reads, node.writes)
            ]
            seen |= {(nodes.index(node), place, last.get(place, -1)) for place in places[0]}
            last |= dict.fromkeys(places[1], nodes.index(node))
        return seen

    want = sources(nodes)
    for seed in range(20):
        assert sources(orders(nodes, random.Random(seed))) == want
