"""The trace backend: the decode step of a sparse model is free of races, and each planted bug is named."""

from __future__ import annotations

import random

import pytest
import torch

from kernels.launch import recording
from kernels.ops.paged_decode_attention import kernel as decode
from kernels.ops.splits import SplitPlan, Workspaces
from kernels.streams import MAIN, SerialStreams, Streams, Trace, TraceFault
from kernels.streams.trace import Node

SIDES = ("kv", "compress", "index")
FP32 = torch.float32


class Cache:
    """What the streams of a step write and the main one reads."""

    def __init__(self) -> None:
        self.window, self.entries, self.index_k = (torch.zeros(16, 4) for _ in range(3))
        self.scratch = {name: torch.zeros(8) for name in (MAIN, *SIDES)}
        self.out = torch.zeros(4)


def step(streams: Streams, cache: Cache, at: int, bug: str = "") -> None:
    """One layer: the side streams fill the caches from x, main computes q, joins them and attends."""
    rows = slice(at, at + 1)
    x = streams.empty(MAIN, (1, 4), FP32)
    streams.launch(MAIN, "norm", lambda: x.fill_(at + 1.0), writes=[x])
    for side in SIDES:
        if not (bug == "no fork" and side == "index"):
            streams.fork(MAIN, side)
    for side, target in zip(SIDES, (cache.window, cache.entries, cache.index_k), strict=True):
        scratch = cache.scratch["kv" if bug == "shared scratch" else side]

        def work(target: torch.Tensor = target) -> None:
            target[rows] = x * 2

        streams.launch(side, f"write {side}", work, reads=[x], writes=[target[rows], scratch])
    if bug == "released early":
        streams.release(MAIN, x)
    q = streams.empty(MAIN, (1, 4), FP32)
    streams.launch(MAIN, "q", lambda: q.fill_(-7.0), writes=[q])
    streams.join(MAIN, "kv", "compress")
    if bug not in ("no join", "late join"):
        streams.join(MAIN, "index")
    reads = [q, cache.window, cache.entries, cache.index_k]
    total = lambda: cache.out.copy_(sum(t[: at + 1].sum(0) for t in reads[1:]))  # noqa: E731
    streams.launch(MAIN, "attend", total, reads=reads, writes=[cache.out])
    if bug == "late join":
        streams.join(MAIN, "index")
    if bug != "kept scratch":
        streams.release(MAIN, q)
    if bug != "released early":
        streams.release(MAIN, x)


def traced(bug: str = "", steps: int = 2) -> Trace:
    trace, cache = Trace(), Cache()
    with trace.capture():
        for at in range(steps):
            step(trace, cache, at, bug)
    return trace


def test_the_step_has_no_race_and_the_same_answer_as_in_order() -> None:
    trace = traced()
    trace.check()
    assert len(trace.nodes) == 2 * 6
    caches = [Cache(), Cache()]
    for streams, cache in zip((Trace(), SerialStreams()), caches, strict=True):
        for at in range(3):
            step(streams, cache, at)
    assert torch.equal(caches[0].out, caches[1].out) and caches[0].out.any()


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("no fork", "write index on stream index, which was not forked from the captured main"),
        ("no join", "the capture ends with 2 launches of stream index not joined"),
        ("late join", r"what write index \(index\) uses is read by attend \(main\), unordered"),
        ("released early", r"what write \w+ \(\w+\) uses is overwritten by q \(main\)|is overwritten by q"),
        ("shared scratch", r"what write kv \(kv\) uses is also written by write compress"),
        ("kept scratch", "allocated inside the capture and is kept"),
    ],
)
def test_the_planted_bug_is_seen(bug: str, said: str) -> None:
    with pytest.raises(TraceFault, match=said):
        traced(bug).check()


def test_one_step_that_is_not_joined_is_seen_too() -> None:
    with pytest.raises(TraceFault, match="not joined"):
        traced("no join", steps=1)


def test_memory_whose_address_a_graph_holds_is_not_given_back() -> None:
    trace = Trace()
    buffer = trace.empty(MAIN, (8,), FP32)
    with trace.capture():
        trace.launch(MAIN, "use", lambda: None, writes=[buffer])
    with pytest.raises(TraceFault, match="whose address a graph holds"):
        trace.release(MAIN, buffer)


def test_a_capture_does_not_wait_for_what_was_not_captured() -> None:
    trace = Trace()
    trace.launch("side", "before", lambda: None)
    event = trace.record("side")
    with pytest.raises(TraceFault, match="waits in a capture"), trace.capture():
        trace.wait(MAIN, event)


def test_released_memory_is_the_next_ones_on_its_stream_alone() -> None:
    trace = Trace()
    a = trace.empty(MAIN, (8,), FP32)
    trace.release(MAIN, a)
    other = trace.empty("side", (8,), FP32)
    again = trace.empty(MAIN, (8,), FP32)
    assert again.data_ptr() == a.data_ptr() != other.data_ptr()
    with pytest.raises(TraceFault, match="release on stream side of memory that is main's"):
        trace.release("side", again)


def test_views_of_one_buffer_meet_only_where_they_overlap() -> None:
    cache = torch.zeros(8, 4)
    for second, races in ((cache[4:], 0), (cache[3:5], 1), (cache[:, 1], 1)):
        trace = Trace()
        trace.launch("a", "first", lambda: None, writes=[cache[:4]])
        trace.launch("b", "second", lambda: None, reads=[second])
        assert len(trace.races()) == races


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

    def sources(order: list[Node]) -> set[tuple[str, str, int]]:
        last: dict[int, str] = {}
        seen = set()
        for node in order:
            for low, high in node.reads:
                seen |= {(node.name, last.get(byte, ""), byte) for byte in range(low, high, 4)}
            for low, high in node.writes:
                last |= dict.fromkeys(range(low, high, 4), f"{node.name} {node.clock[node.stream]}")
        return seen

    want = sources(nodes)
    for seed in range(20):
        assert sources(orders(nodes, random.Random(seed))) == want
