"""The writes of a rank: posted in slices, checked until they are complete, quiesced by room.

A room is quiet once nothing of it waits to be posted and every handle ended; a handle that stays in
progress on a frozen peer keeps its room open until the peer is removed, because that is the truth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from nixl._api import nixl_agent, nixl_xfer_handle

from engine.transfer import commands as c
from engine.transfer.edge import NIXL_ERRORS, Edge, say
from engine.transfer.summer import Job, Summer

SLICE_BYTES = 16 << 20
NEVER = float("inf")


@dataclass(eq=False)
class _Post:
    """A Post on its way: `run` and `at` are the run and the page that go out next."""

    command: c.Post
    edge: Edge
    started: float
    not_before: float
    sums: Job
    run: int = 0
    at: int = 0
    bytes: int = 0
    failed: bool = False
    dropped: bool = False
    handles: list[nixl_xfer_handle] = field(default_factory=list)

    @property
    def unposted(self) -> bool:
        return self.run < len(self.edge.runs) and not self.failed and not self.dropped

    @property
    def unsummed(self) -> bool:
        return not (self.sums.done or self.failed or self.dropped)


class Posts:
    """Used from the agent's thread only. `waiting` holds what still goes out, `open` what may still land."""

    def __init__(
        self,
        nixl: nixl_agent,
        rank: int,
        report: Callable[[c.Report], None],
        clock: Callable[[], float],
        summer: Summer,
    ) -> None:
        self._nixl, self._rank, self._report, self._clock = nixl, rank, report, clock
        self._summer = summer
        self._waiting: deque[_Post] = deque()
        self._open: list[_Post] = []
        self._quiescing: set[int] = set()
        self._stuck: list[nixl_xfer_handle] = []

    def __len__(self) -> int:
        return len(set(map(id, self._open)) | set(map(id, self._waiting)))

    @property
    def busy(self) -> bool:
        """Whether the next turns may find something to do (held posts of a drill do not count)."""
        return bool(self._open) or any(p.not_before < NEVER for p in self._waiting)

    def accept(self, command: c.Post, edge: Edge) -> None:
        now = self._clock()
        job = Job(command.sums, command.first, command.tokens)
        post = _Post(command, edge, now, NEVER if command.stall else now + command.delay, job)
        if command.src and (edge.runs or command.stall):
            self._waiting.append(post)
        elif post.unsummed:
            self._open.append(post)
        else:
            self._posted(post)

    def turn(self) -> bool:
        """Post one slice of one room, sum one and look at every open handle; True when something moved.

        A sum is made while the write of the same bytes is under way, which finds them in the CPU's cache.
        """
        moved = self._post_next()
        moved = self._sum_next() or moved
        for post in list(self._open):
            moved = self._check(post) or moved
            if not post.handles and not post.unposted and not post.unsummed:
                self._open.remove(post)
                moved = True
                if not post.failed and not post.dropped:
                    self._posted(post)
        if moved:
            self._say_quiet()
        return moved

    def quiesce(self, room: int) -> None:
        for post in [*self._waiting, *self._open]:
            post.dropped = post.dropped or post.command.room == room
        self._waiting = deque(p for p in self._waiting if not p.dropped)
        self._open = [p for p in self._open if p.handles or p.unposted or p.unsummed]
        self._quiescing.add(room)
        self._say_quiet()

    def release(self, edge: Edge) -> Callable[[], None]:
        """Let go of every write over an edge that is being removed. Call the result once it is gone."""
        gone = [p for p in {id(p): p for p in (*self._waiting, *self._open)}.values() if p.edge is edge]
        self._waiting = deque(p for p in self._waiting if p.edge is not edge)
        for post in gone:
            for handle in post.handles:
                self._dispose(handle)
            post.handles.clear()

        def finish() -> None:
            self._open = [p for p in self._open if p.edge is not edge]
            for post in gone:
                if not post.dropped and not post.failed:
                    self.fail(post.command, "the peer was removed")
            self._say_quiet()

        return finish

    def fail(self, command: c.Post, error: str) -> None:
        self._report(c.PostError(rank=self._rank, room=command.room, seq=command.seq, error=error))

    def _post_next(self) -> bool:
        now = self._clock()
        for _ in range(len(self._waiting)):
            post = self._waiting.popleft()
            if post.not_before > now:
                self._waiting.append(post)
                continue
            if post not in self._open:
                self._open.append(post)
            self._post_slice(post)
            if post.unposted:
                self._waiting.append(post)  # behind the other rooms' slices
            return True
        return False

    def _sum_next(self) -> bool:
        post = next((p for p in self._open if p.unsummed), None)
        if post is not None:
            self._summer.advance(post.sums)
        return post is not None

    def _post_slice(self, post: _Post) -> None:
        run = post.edge.runs[post.run]
        src, dst = post.command.src, post.command.dst
        end = min(post.at + max(1, SLICE_BYTES // run.bytes), len(src))
        try:
            handle = post.edge.prepare(post.run, src[post.at : end], dst[post.at : end])
            post.handles.append(handle)
            self._nixl.transfer(handle)
        except NIXL_ERRORS as error:
            self._failed(post, say(error))
            return
        if post.command.fail:
            self._failed(post, "a drill lets it fail")
            return
        post.bytes += run.bytes * (end - post.at)
        post.at = end
        if end == len(src):
            post.run, post.at = post.run + 1, 0

    def _check(self, post: _Post) -> bool:
        """Drop the handles that ended; True when one did."""
        before = len(post.handles)
        for handle in list(post.handles):
            try:
                state = self._nixl.check_xfer_state(handle)
                error = "the transfer ended in error" if state == "ERR" else ""
            except NIXL_ERRORS as raised:
                state, error = "ERR", say(raised)
            if state == "PROC":
                continue
            post.handles.remove(handle)
            self._dispose(handle)
            if error:
                self._failed(post, error)
        return len(post.handles) != before

    def _failed(self, post: _Post, error: str) -> None:
        if not post.failed and not post.dropped:
            self.fail(post.command, error)
        post.failed = True
        self._waiting = deque(p for p in self._waiting if p is not post)

    def _posted(self, post: _Post) -> None:
        self._report(
            c.Posted(
                rank=self._rank,
                room=post.command.room,
                seq=post.command.seq,
                bytes=post.bytes,
                seconds=self._clock() - post.started,
                first=post.command.first,
                sums=post.sums.data,
            )
        )

    def _say_quiet(self) -> None:
        still = {p.command.room for p in (*self._open, *self._waiting)}
        for room in sorted(self._quiescing - still):
            self._quiescing.discard(room)
            self._report(c.Quiet(self._rank, room))

    def _dispose(self, handle: nixl_xfer_handle) -> None:
        """Release a handle; one that NIXL cannot cancel yet is kept until the agent ends."""
        try:
            handle.release()
        except NIXL_ERRORS:
            self._stuck.append(handle)
