"""One rank's agent against a real receiving agent: order, drills, quiescing, peers that go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.core.ids import new_incarnation
from engine.transfer import commands as c
from engine.transfer.agent import Agent
from tests.engine.transfer.harness import SHAPE, RealAgents, fill, make_pool, until


class Pair:
    """A writing and a receiving rank; `reports` are the writer's, Beats left out."""

    def __init__(self) -> None:
        self.src = RealAgents(1, 16, "src", new_incarnation())
        self.dst = RealAgents(1, 16, "dst", new_incarnation())
        fill(self.src.pools[0], 0, seed=1)

    @property
    def reports(self) -> list[c.Report]:
        return [r for r in self.src.reports if not isinstance(r, c.Beat)]

    def add(self, epoch: int = 1, deadline: float = 10.0) -> None:
        (info,) = self.dst.infos
        self.src.broadcast(
            c.AddPeer(
                peer="dst",
                tp=1,
                metadata=[info.metadata],
                bases=[info.base],
                devices=[info.device],
                heads=[info.heads],
                pages=info.pages,
                epoch=epoch,
                deadline=deadline,
            )
        )

    def post(self, room: int, src: list[int], dst: list[int], seq: int = 1, **drill: float) -> None:
        command = c.Post(room=room, seq=seq, peer="dst", src=src, dst=dst, **drill)  # type: ignore[arg-type]
        self.src.broadcast(command)

    def expect(self, kind: type[c.Report], what: str, count: int = 1) -> c.Report:
        until(lambda: sum(isinstance(r, kind) for r in self.reports) >= count, what)
        return [r for r in self.reports if isinstance(r, kind)][count - 1]


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.src.stop()
    made.dst.stop()


@pytest.fixture
def linked(pair: Pair) -> Pair:
    pair.add()
    pair.expect(c.PeerAdded, "the edge is warm")
    return pair


def test_the_warm_up_touches_only_the_scratch_page(linked: Pair) -> None:
    assert not linked.dst.pools[0][:-1].any()
    assert torch.equal(linked.dst.pools[0][-1], linked.src.pools[0][-1])


def test_a_post_is_reported_when_its_bytes_are_there(linked: Pair) -> None:
    linked.post(1, [0, 5], [9, 2])
    done = linked.expect(c.Posted, "posted")
    assert isinstance(done, c.Posted) and (done.room, done.seq) == (1, 1)
    assert done.bytes == 2 * 3 * SHAPE.head_bytes
    assert torch.equal(linked.dst.pools[0][[9, 2]], linked.src.pools[0][[0, 5]])


@pytest.mark.parametrize(("src", "dst"), [([0], [15]), ([15], [0]), ([0], [16]), ([-1], [0]), ([0, 1], [0])])
def test_pages_that_are_not_there_to_write_are_refused(linked: Pair, src: list[int], dst: list[int]) -> None:
    linked.post(1, src, dst)
    linked.expect(c.PostError, "refused")
    linked.post(2, [0], [0])
    linked.expect(c.Posted, "the agent is well")


def test_an_unknown_peer_is_an_error_of_the_post(pair: Pair) -> None:
    pair.post(1, [0], [0])
    error = pair.expect(c.PostError, "refused")
    assert isinstance(error, c.PostError) and "not known" in error.error


def test_a_stalled_room_is_never_posted_and_quiet_when_told(linked: Pair) -> None:
    linked.post(1, [0], [1], stall=True)
    linked.post(2, [0], [2])
    linked.expect(c.Posted, "the other room is not blocked")
    assert not linked.dst.pools[0][1].any()
    linked.src.broadcast(c.Quiesce(1))
    assert linked.expect(c.Quiet, "quiet") == c.Quiet(0, 1)
    linked.post(3, [0], [3])
    linked.expect(c.Posted, "a room after it", 2)
    assert not linked.dst.pools[0][1].any()


def test_a_room_that_is_let_fail_is_reported_and_quiet_once_its_write_has_landed(linked: Pair) -> None:
    linked.post(1, [0], [1], fail=True)
    assert linked.expect(c.PostError, "the error").room == 1
    linked.src.broadcast(c.Quiesce(1))
    assert linked.expect(c.Quiet, "quiet") == c.Quiet(0, 1)
    assert linked.dst.pools[0][1].any(), "its first write was made"
    linked.post(2, [0], [2])
    linked.expect(c.Posted, "a room after it")


def test_a_slow_room_does_not_block_another(linked: Pair) -> None:
    linked.post(1, [0], [1], delay=0.3)
    linked.post(2, [0], [2])
    linked.expect(c.Posted, "both", 2)
    assert [r.room for r in linked.reports if isinstance(r, c.Posted)] == [2, 1]


def test_quiet_of_a_room_without_writes_comes_at_once(linked: Pair) -> None:
    linked.src.broadcast(c.Quiesce(77))
    assert linked.expect(c.Quiet, "quiet") == c.Quiet(0, 77)


def test_removing_a_peer_fails_its_posts_and_quiets_its_rooms(linked: Pair) -> None:
    linked.post(1, [0], [1], stall=True)
    linked.src.broadcast(c.RemovePeer("dst"))
    linked.expect(c.PostError, "the held post failed")
    linked.src.broadcast(c.Quiesce(1))
    linked.expect(c.Quiet, "quiet")
    assert c.PeerRemoved(0, "dst") in linked.reports
    linked.add(epoch=2)
    linked.expect(c.PeerAdded, "the same agents can be added again", 2)
    linked.post(2, [3], [4])
    linked.expect(c.Posted, "and written to")
    assert torch.equal(linked.dst.pools[0][4], linked.src.pools[0][3])


def test_a_peer_that_nobody_polls_is_an_error_at_the_deadline(pair: Pair) -> None:
    agent = Agent(
        name="mute", rank=0, heads=(0, 3), shape=SHAPE, pool=make_pool(16, 1, 0), report=lambda report: None
    )
    pair.dst.infos = [agent.info()]
    pair.add(epoch=5, deadline=0.2)
    error = pair.expect(c.PeerError, "the warm-up timed out")
    assert isinstance(error, c.PeerError) and error.epoch == 5 and "deadline" in error.error


def test_a_peer_that_is_gone_is_an_error_of_the_peer(pair: Pair) -> None:
    pair.dst.stop()
    pair.add(epoch=6)
    error = pair.expect(c.PeerError, "its address refuses")
    assert isinstance(error, c.PeerError) and error.epoch == 6


def test_broken_metadata_is_an_error_of_the_peer(pair: Pair) -> None:
    good = pair.dst.infos[0]
    bad = c.AgentInfo(rank=0, metadata=b"junk", base=good.base, device=0, heads=good.heads, pages=16)
    pair.dst.infos = [bad]
    pair.add()
    pair.expect(c.PeerError, "refused")


def test_the_thread_beats(linked: Pair) -> None:
    until(lambda: sum(isinstance(r, c.Beat) for r in linked.src.reports) >= 2, "two beats")
