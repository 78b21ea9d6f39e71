"""A rank's NIXL side: registers the pool, executes the leader's commands, reports what happened.

NIXL over UCX copies in the posting thread when both ends share a host, and otherwise needs either end
polled for wire-up and flush; so posts go out in slices and an idle agent still polls.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch
from nixl._api import nixl_agent, nixl_agent_config

from engine.core.types import Shape
from engine.transfer import commands as c
from engine.transfer.edge import NIXL_ERRORS, Edge, Warming, say
from engine.transfer.layout import page_bytes
from engine.transfer.posts import Posts
from engine.transfer.summer import Job, Summer

log = logging.getLogger("pdctl.engine.transfer")
if "NIXL_LOG_LEVEL" not in os.environ:  # its import sends INFO lines to stdout
    logging.getLogger("nixl").setLevel(logging.WARNING)

# Seconds between polls: with writes open, with a peer that may write here, with neither.
POLL_BUSY = 0.0002
POLL = 0.002
IDLE = 0.01
SPIN_SECONDS = 0.002
STUCK_SECONDS = 1.0
BEAT_SECONDS = 1.0


class Agent:
    """Executes commands on this rank's pool [pages, kv_heads, layers, 2, slot, dim]; of one thread only.

    `report` is called on that thread and must not block. The pool must be contiguous, hold
    `heads[1] - heads[0]` KV heads a page, and keep its last page as scratch. `name` is core.ids.agent_name;
    `verify` says which index-K of pages with so many tokens is wrong, nothing when it is right.
    """

    def __init__(
        self,
        *,
        name: str,
        rank: int,
        heads: tuple[int, int],
        shape: Shape,
        pool: torch.Tensor,
        report: Callable[[c.Report], None],
        verify: Callable[[Sequence[int], int], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        size = page_bytes(shape, heads)
        if not pool.is_contiguous() or pool.shape[0] * size != pool.numel() * pool.element_size():
            raise ValueError("the pool is not contiguous pages of this rank's heads")
        self.rank, self._heads, self._shape, self._pool = rank, heads, shape, pool
        self._report, self._verify, self._clock = report, verify, clock
        self._nixl = nixl_agent(name, nixl_agent_config(enable_prog_thread=False))
        if size:
            self._nixl.register_memory(pool)
        self._edges: dict[str, Edge] = {}
        self._warming: dict[str, Warming] = {}
        self._summer = Summer(pool, heads[0], shape.opaque)
        self._checks: deque[tuple[c.Check, Job]] = deque()
        self.posts = Posts(self._nixl, rank, report, clock, self._summer)

    def info(self) -> c.AgentInfo:
        """What the leader puts into Hello."""
        return c.AgentInfo(
            rank=self.rank,
            metadata=self._nixl.get_agent_metadata(),
            base=self._pool.data_ptr(),
            device=max(self._pool.get_device(), 0),
            heads=self._heads,
            pages=self._pool.shape[0],
            memory="VRAM" if self._pool.is_cuda else "DRAM",
        )

    @property
    def busy(self) -> bool:
        return bool(self._warming) or bool(self._checks) or self.posts.busy

    @property
    def receives(self) -> bool:
        """Whether a peer writes here: over TCP its writes only go on while this side polls."""
        return any(not edge.writes for edge in self._edges.values())

    def execute(self, command: c.Command) -> None:
        match command:
            case c.AddPeer():
                self._add_peer(command)
            case c.RemovePeer():
                self._drop_edge(command.peer)
                self._report(c.PeerRemoved(self.rank, command.peer))
            case c.Post():
                self._post(command)
            case c.Quiesce():
                self.posts.quiesce(command.room)
            case c.Check():
                if command.flip is not None:
                    self._summer.flip(command.flip)
                self._checks.append((command, Job(command.pages if command.sums else [], 0, command.tokens)))

    def turn(self) -> bool:
        """One round: poll, post one slice, check open handles. True when something moved."""
        self._nixl.get_new_notifs()
        moved = self.posts.turn()
        moved = self._check_pages() or moved
        return self._check_warming() or moved

    def _add_peer(self, command: c.AddPeer) -> None:
        self._drop_edge(command.peer)
        try:
            edge = Edge.create(self._nixl, command, self.rank, self._heads, self._shape, self._pool)
            self._edges[command.peer] = edge
            self._warming[command.peer] = Warming.start(edge, command, self._clock())
        except NIXL_ERRORS as error:
            self._drop_edge(command.peer)
            self._report(c.PeerError(self.rank, command.peer, say(error), command.epoch))

    def _check_pages(self) -> bool:
        """Sum one slice of the oldest Check; its answer once all of it is summed."""
        if not self._checks:
            return False
        check, job = self._checks[0]
        if not job.done:
            self._summer.advance(job)
        if job.done:
            self._checks.popleft()
            wrong = self._verify(check.pages, check.tokens) if check.index and self._verify else ""
            answer = c.Checked(
                rank=self.rank, room=check.room, ticket=check.ticket, sums=job.data, wrong=wrong
            )
            self._report(answer)
        return True

    def _check_warming(self) -> bool:
        moved = False
        for peer, warming in list(self._warming.items()):
            now = self._clock()
            try:
                if not warming.settled(now):
                    continue
            except NIXL_ERRORS as error:
                self._drop_edge(peer)
                late = isinstance(error, TimeoutError)
                self._report(c.PeerError(self.rank, peer, say(error), warming.epoch, late))
            else:
                del self._warming[peer]
                self._report(c.PeerAdded(self.rank, peer, now - warming.started, warming.epoch))
            moved = True
        return moved

    def _drop_edge(self, peer: str) -> None:
        """Handles first, then lists and agents; only then is what was open over the edge quiet."""
        warming = self._warming.pop(peer, None)
        if warming:
            warming.release()
        edge = self._edges.pop(peer, None)
        if edge:
            finish = self.posts.release(edge)
            edge.remove()
            finish()

    def _post(self, command: c.Post) -> None:
        edge = self._edges.get(command.peer)
        problem = edge.misfit(command) if edge else "the peer is not known to this rank"
        if edge is None or problem:
            self.posts.fail(command, problem)
        else:
            self.posts.accept(command, edge)


class AgentThread:
    """An Agent on its own thread; `submit` from any thread. `report` is called on the transfer thread.

    `crashed` is called there with whatever unexpected ended it; the process should then end too, for
    its peers' writes have nobody to poll them. Beats stop in any case.
    """

    def __init__(
        self,
        *,
        name: str,
        rank: int,
        heads: tuple[int, int],
        shape: Shape,
        pool: torch.Tensor,
        report: Callable[[c.Report], None],
        crashed: Callable[[BaseException], None] | None = None,
        verify: Callable[[Sequence[int], int], str] | None = None,
    ) -> None:
        self._create = lambda: Agent(
            name=name, rank=rank, heads=heads, shape=shape, pool=pool, report=report, verify=verify
        )
        self._report, self._crashed = report, crashed
        self._commands: deque[c.Command] = deque()
        # A binary semaphore: waiting on a bare lock costs a third less CPU than on an Event.
        self._wake = threading.Lock()
        self._created = threading.Event()
        self._stopping = False
        self._info: c.AgentInfo | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="transfer", daemon=True)

    @property
    def info(self) -> c.AgentInfo:
        """Known once `start` has returned."""
        if self._info is None:
            raise self._error or RuntimeError("the transfer thread was not started")
        return self._info

    def start(self, timeout: float = 60.0) -> None:
        """Start and wait for the agent; raises what creating it raised, or TimeoutError."""
        self._thread.start()
        if not self._created.wait(timeout):
            raise TimeoutError(f"the transfer agent was not created within {timeout:g} s")
        if self._error is not None:
            raise self._error

    def submit(self, command: c.Command) -> None:
        self._commands.append(command)
        self._nudge()

    def stop(self, timeout: float = 5.0) -> None:
        """End the loop; what is still open is fenced with this incarnation."""
        self._stopping = True
        self._nudge()
        self._thread.join(timeout)

    def _nudge(self) -> None:
        try:
            self._wake.release()
        except RuntimeError:
            pass  # not waiting: the loop looks at its commands before it waits again

    def _run(self) -> None:
        torch.set_num_threads(1)  # of this thread: its checksums leave the other cores to the forward
        try:
            agent = self._create()
            self._info = agent.info()
            self._created.set()
            self._loop(agent)
        except BaseException as error:
            self._error = error
            log.critical("transfer_thread_ended %s", say(error))
            if self._created.is_set() and self._crashed is not None:
                self._crashed(error)
            self._created.set()
            raise

    def _loop(self, agent: Agent) -> None:
        beat = moved_at = 0.0
        while not self._stopping:
            self._wake.acquire(blocking=False)
            while self._commands:
                agent.execute(self._commands.popleft())
                moved_at = time.monotonic()
            moved = agent.turn()
            now = time.monotonic()
            moved_at = now if moved else moved_at
            if now - beat >= BEAT_SECONDS:
                beat = now
                self._report(c.Beat(agent.rank, len(agent.posts)))
            # Spin only while writes complete: a handle stuck on a frozen peer must not cost a core.
            if agent.busy:
                quiet_for = now - moved_at
                if quiet_for > SPIN_SECONDS:
                    self._wake.acquire(timeout=POLL_BUSY if quiet_for < STUCK_SECONDS else POLL)
            else:
                self._wake.acquire(timeout=POLL if agent.receives else IDLE)
