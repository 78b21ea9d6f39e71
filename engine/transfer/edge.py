"""One peer of a rank: its loaded agents, prepared descriptor lists and the warm-up of the path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import nixl._bindings as bindings
import numpy as np
import numpy.typing as npt
import torch
from nixl._api import nixl_agent, nixl_prepped_dlist_handle, nixl_xfer_handle

from engine.core.types import Shape
from engine.transfer.commands import AddPeer, Post
from engine.transfer.layout import Grid, Run, runs, unit_of

NIXL_ERRORS: tuple[type[Exception], ...] = (
    bindings.nixlBackendError,
    bindings.nixlCancelledError,
    bindings.nixlInvalidParamError,
    bindings.nixlMismatchError,
    bindings.nixlNotAllowedError,
    bindings.nixlNotFoundError,
    bindings.nixlNotPostedError,
    bindings.nixlNotSupportedError,
    bindings.nixlRemoteDisconnectError,
    bindings.nixlRepostActiveError,
    bindings.nixlUnknownError,
    TimeoutError,
)
# How long the receiving side polls before it says that nothing of an earlier connection is under way.
SETTLE_SECONDS = 0.025
SETTLE_POLLS = 10


def say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@dataclass(eq=False)
class Edge:
    """A peer's agents as this rank uses them; `local[i]`, `remote[i]` list the pieces of `runs[i]`.

    Pages are written in units: `src_each` to a page here, `dst_each` to one there.
    """

    nixl: nixl_agent
    src_pages: int
    dst_pages: int
    writes: bool
    src_each: int = 1
    dst_each: int = 1
    runs: list[Run] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    local: list[nixl_prepped_dlist_handle] = field(default_factory=list)
    remote: list[nixl_prepped_dlist_handle] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        nixl: nixl_agent,
        peer: AddPeer,
        rank: int,
        heads: tuple[int, int],
        shape: Shape,
        pool: torch.Tensor,
    ) -> Edge:
        """Load the agents this rank writes to (none unless `peer.write`); raises one of NIXL_ERRORS."""
        edge = cls(nixl, pool.shape[0], peer.pages, peer.write)
        if not peer.write:
            return edge
        size = peer.page_size or shape.page_size
        unit = unit_of(shape.page_size, size)
        if unit is None:
            raise bindings.nixlMismatchError(f"pages of {shape.page_size} and of {size} tokens")
        edge.src_each, edge.dst_each = unit.src, unit.dst
        device, memory = max(pool.get_device(), 0), "VRAM" if pool.is_cuda else "DRAM"
        try:
            for run in runs(shape, heads, peer.heads, page_size=size, rank=rank, tp=peer.writers):
                name = nixl.add_remote_agent(peer.metadata[run.rank])
                edge.names.append(name if isinstance(name, str) else name.decode())
                mine = _pieces(run, run.src, pool.data_ptr(), device, pool.shape[0])
                edge.local.append(nixl.prep_xfer_dlist("NIXL_INIT_AGENT", mine, memory))
                far = _pieces(run, run.dst, peer.bases[run.rank], peer.devices[run.rank], peer.pages)
                edge.remote.append(nixl.prep_xfer_dlist(edge.names[-1], far, peer.memory))
                edge.runs.append(run)
        except NIXL_ERRORS:
            edge.remove()
            raise
        return edge

    def prepare(self, run: int, src: Sequence[int], dst: Sequence[int]) -> nixl_xfer_handle:
        """A write of units `src` here to units `dst` there, not posted yet."""
        one = self.runs[run]
        return self.nixl.make_prepped_xfer(
            "WRITE",
            self.local[run],
            one.src.pick(src, one.pieces),
            self.remote[run],
            one.dst.pick(dst, one.pieces),
        )

    def misfit(self, post: Post) -> str:
        """Why this post cannot be made, or an empty string: the scratch page is nobody's to write."""
        if len(post.src) != len(post.dst):
            return "source and target pages differ in number"
        for name, units, each, pages in (
            ("source", post.src, self.src_each, self.src_pages),
            ("target", post.dst, self.dst_each, self.dst_pages),
        ):
            if any(not 0 <= unit < (pages - 1) * each for unit in units):
                return f"a {name} page lies outside 0..{pages - 2}"
        return ""

    def remove(self) -> None:
        """Release the lists and the agents; a dead peer's are released the same way."""
        undo = [handle.release for handle in (*self.local, *self.remote)]
        undo += [partial(self.nixl.remove_remote_agent, name) for name in self.names]
        for step in undo:
            try:
                step()
            except NIXL_ERRORS:
                continue  # already gone: being gone is what was wanted
        self.runs, self.names, self.local, self.remote = [], [], [], []


def _pieces(run: Run, grid: Grid, base: int, device: int, pages: int) -> npt.NDArray[np.uint64]:
    """A pool's pieces as NIXL's compressed list: (address, length, device, stride, count)."""
    row = (base + grid.offset, run.length, device, grid.stride, grid.count(pages, run.pieces))
    return np.array([row], dtype=np.uint64)


@dataclass(eq=False)
class Warming:
    """The first write over each path of an edge: wire-up takes milliseconds and the peer's polling."""

    handles: list[nixl_xfer_handle]
    nixl: nixl_agent
    started: float
    until: float
    settle: float
    epoch: int
    polls: int = 0

    @classmethod
    def start(cls, edge: Edge, peer: AddPeer, now: float) -> Warming:
        """Write scratch page to scratch page over every run. The receiving side only waits: what an
        earlier connection of the same peer had under way arrives while its sockets are polled."""
        settle = 0.0 if peer.write else now + SETTLE_SECONDS
        warming = cls([], edge.nixl, now, now + peer.deadline, settle, peer.epoch)
        try:
            for index in range(len(edge.runs)):
                src, dst = (edge.src_pages - 1) * edge.src_each, (edge.dst_pages - 1) * edge.dst_each
                handle = edge.prepare(index, [src], [dst])
                warming.handles.append(handle)
                edge.nixl.transfer(handle)
        except NIXL_ERRORS:
            warming.release()
            raise
        return warming

    def settled(self, now: float) -> bool:
        """Whether every path is warm. TimeoutError past the deadline, a NIXL error when one broke."""
        self.polls += 1
        for handle in list(self.handles):
            state = self.nixl.check_xfer_state(handle)
            if state == "ERR":
                raise bindings.nixlBackendError("the warm-up write ended in error")
            if state == "DONE":
                self.handles.remove(handle)
                handle.release()
        if self.handles and now >= self.until:
            self.release()
            raise TimeoutError("the warm-up write did not complete before the handshake deadline")
        return not self.handles and now >= self.settle and (not self.settle or self.polls >= SETTLE_POLLS)

    def release(self) -> None:
        for handle in self.handles:
            try:
                handle.release()
            except NIXL_ERRORS:
                continue  # NIXL keeps it until the agent ends
        self.handles = []
