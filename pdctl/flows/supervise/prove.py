"""Whether a wedge is real: no transfer over the edge, and a real request over it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.errors import PdctlError
from pdctl.fleet.model import Cell, Engine
from pdctl.flows import admin
from pdctl.flows.canary import router_canary
from pdctl.flows.context import Context
from pdctl.flows.edge_canary import send
from pdctl.flows.foreign import is_foreign, knows_edges
from pdctl.remote.fanout import fan_out


@dataclass(frozen=True)
class Proof:
    """`failed` edges with why, `passed` ones; `moved` are edges whose canary failed and that work all the
    same. An edge that could not be tried is in none of them, `unknown` says why."""

    failed: Mapping[str, str]
    passed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def wedged(self) -> bool:
        return bool(self.failed)

    @property
    def partial(self) -> bool:
        """Whether the cell serves over some edge."""
        return bool(self.passed or self.moved)

    def words(self) -> str:
        lines = [f"the canary over {edge} failed: {why}" for edge, why in self.failed.items()]
        lines += [f"the canary over {edge} passed" for edge in self.passed]
        lines += [f"{edge} moves requests although its canary failed" for edge in self.moved]
        return "; ".join([*lines, *([self.unknown] if self.unknown else [])])


def prove(ctx: Context, cell: Cell, seconds: float) -> Proof:
    """One small canary over every edge of the cell at once, `seconds` each."""
    edges = {f"{p.name} -> {d.name}": (p, d) for p, d in cell.edges if knows_edges(p, d)}
    if not edges:
        return _by_router(ctx, cell, seconds)
    before = {name: _transfers(ctx, *edge) for name, edge in edges.items()}
    sent = fan_out(edges, lambda name: send(ctx, *edges[name], "small", seconds))
    failed: dict[str, str] = {}
    passed, moved = [], []
    for name, result in sent.items():
        problem = result.message if isinstance(result, PdctlError) else result.problem
        if not problem:
            passed.append(name)
        elif before[name] >= 0 and _transfers(ctx, *edges[name]) > before[name]:
            moved.append(name)
        else:
            failed[name] = problem
    return Proof(failed, tuple(passed), tuple(moved))


def _transfers(ctx: Context, prefill: Engine, decode: Engine) -> int:
    """Transfers that went well over this edge in the present life of the prefill, -1 when it does not say."""
    if is_foreign(prefill):
        return -1
    peers = admin.state(ctx, prefill.url).get("peers")
    if peers is None:
        return -1
    return sum(int(p.get("transfers_ok", 0)) for p in peers if p.get("instance") == decode.name)


def _by_router(ctx: Context, cell: Cell, seconds: float) -> Proof:
    """Of engines whose way to hand over is not known: through the router, where all goes to this cell."""
    if len(ctx.fleet.cells) > 1 or ctx.fleet.router.kind == "none":
        kinds = ", ".join(sorted({e.kind for e in cell.engines}))
        return Proof({}, unknown=f"how {kinds} hands over is not known, so no canary can prove the wedge")
    try:
        router_canary(ctx, seconds)
    except PdctlError as error:
        return Proof({"the router": error.message})
    return Proof({}, passed=("the router",))
