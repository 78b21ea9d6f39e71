"""Preflight of what UCX is told: devices that are there, and a transport that leaves the host; pure."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.facts.missing import Missing, known
from pdctl.fleet.model import Engine
from pdctl.flows.check.hosts import HostState
from pdctl.flows.check.report import Line, fail, ok, skip

DEVICES, TRANSPORTS = "UCX_NET_DEVICES", "UCX_TLS"
# Those that carry data between two machines; UCX takes `ib` for all of InfiniBand's.
BETWEEN = (
    "tcp",
    "ib",
    "rc",
    "ud",
    "dc",
    "rc_v",
    "rc_x",
    "rc_mlx5",
    "ud_v",
    "ud_x",
    "ud_mlx5",
    "dc_x",
    "dc_mlx5",
)


def lines(state: HostState, across: set[str]) -> Iterator[Line]:
    """`across` are engines with a peer on another machine."""
    for engine in state.engines:
        env = state.env[engine.name]
        yield _devices(state, engine, env.get(DEVICES, "all"), engine.name in across)
        if TRANSPORTS in env and engine.name in across:
            yield _transports(state, engine, env[TRANSPORTS])


def _there(state: HostState) -> dict[str, bool] | Missing:
    """Device as UCX names it -> whether it can carry something."""
    if isinstance(state.interfaces, Missing):
        return state.interfaces
    found = {i.name: i.up for i in state.interfaces}
    return found | ({r.device: r.active for r in state.rdma} if known(state.rdma) else {})


def _devices(state: HostState, engine: Engine, wish: str, across: bool) -> Line:
    there = _there(state)
    wanted = f"{DEVICES}={wish}" + (", reaching another machine" if across else "")
    if isinstance(there, Missing):
        return skip(engine.name, "ucx", there, wanted)
    usable = sorted(name for name, up in there.items() if up and (name != "lo" or not across))
    found = f"usable: {', '.join(usable) or 'none'}"
    fix = f"pdctl profile set {DEVICES} to one of them, or leave it out"
    names = [n.strip() for n in wish.split(",") if n.strip()]
    if wish == "all":
        return (
            ok(engine.name, "ucx", found, wanted) if usable else fail(engine.name, "ucx", found, wanted, fix)
        )
    absent = [n for n in names if n not in there and f"{n}:1" not in there]
    if absent:
        return fail(engine.name, "ucx", f"no {', '.join(absent)} on {state.name}; {found}", wanted, fix)
    down = [n for n in names if not (there.get(n) or there.get(f"{n}:1"))]
    if down:
        return fail(
            engine.name, "ucx", f"{', '.join(down)} is down; {found}", wanted, f"bring it up, or {fix}"
        )
    if across and set(names) == {"lo"}:
        return fail(engine.name, "ucx", f"lo leaves no machine; {found}", wanted, fix)
    return ok(engine.name, "ucx", found, wanted)


def _transports(state: HostState, engine: Engine, wish: str) -> Line:
    """A list to use, or after ^ a list to leave out."""
    wanted = "a transport between machines"
    fix = f"pdctl profile set {TRANSPORTS} to a list with tcp, or leave it out"
    names = [n.strip() for n in wish.lstrip("^").split(",") if n.strip()]
    if wish.startswith("^"):
        left = [n for n in ("tcp", "ib") if n not in names]
    else:
        left = [n for n in names if n in BETWEEN or n == "all"]
    if not left:
        return fail(engine.name, "ucx", f"{TRANSPORTS}={wish} has none", wanted, fix)
    if known(state.rdma) and not any(r.active for r in state.rdma) and not {"tcp", "all"} & set(left):
        found = f"{TRANSPORTS}={wish}, and {state.name} has no active RDMA device"
        return fail(engine.name, "ucx", found, wanted, fix)
    return ok(engine.name, "ucx", f"{TRANSPORTS}={wish}", wanted)
