"""Every drill, in the order in which --all plays them: what a request meets, then what an engine meets."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.errors import ConfigError
from pdctl.fleet.names import nearest
from pdctl.flows.drill.alone import Alone
from pdctl.flows.drill.faulty import FaultDrill
from pdctl.flows.drill.kind import Drill
from pdctl.flows.drill.struck import Freeze, Hold, Kill

# Seconds: a diagnosis takes one to three, and what it looks for has to be some seconds old to count.
SOON = 30.0
ARMED = ("PD606",)


def _pinned(name: str, does: str) -> Drill:
    """One request that its point takes, and that stands in prefill's inflight queue from then on."""
    return FaultDrill(name, does, ("PD602",), SOON, ruins=1, point=name, count=1, stage="inflight")


_ALL: tuple[Drill, ...] = (
    _pinned("stall-transfer", "The KV writes of one request are held on prefill and never posted."),
    _pinned("lose-want", "Decode's request for the pages of one request is dropped on prefill."),
    _pinned("lose-done", "Prefill does not tell decode that one request's pages have arrived."),
    FaultDrill(
        "slow-transfer",
        "Every KV write waits 3 s on prefill.",
        ARMED,
        SOON,
        point="slow-transfer",
        value=3.0,
    ),
    FaultDrill(
        "fail-post",
        "Every KV write on prefill ends in an error.",
        ARMED,
        SOON,
        spares=False,
        point="fail-post",
    ),
    FaultDrill(
        "refuse-pages",
        "Decode grants no request any pages.",
        ARMED,
        SOON,
        point="refuse-pages",
        stage="waiting",
    ),
    FaultDrill("stop-steps", "Decode runs no batch.", ARMED, SOON, point="stop-steps"),
    Hold(
        "hold-forgotten",
        "The router holds admissions, as a run that died would leave it.",
        ("PD604",),
        SOON,
    ),
    Freeze("freeze-rank", "One rank of an engine is stopped (SIGSTOP).", ("PD202",), SOON, rank=True),
    Freeze("freeze-engine", "All processes of an engine are stopped (SIGSTOP).", ("PD202",), SOON),
    Kill(
        "kill-engine",
        "An engine is killed (SIGKILL); its supervisor starts it anew.",
        ("PD204", "PD201"),
        SOON,
    ),
    Alone(
        "one-sided-restart",
        "An engine is restarted alone; where stale peer state may be kept its whole cell after it.",
        ("PD501", "PD510"),
        120.0,
    ),
)
DRILLS = {drill.name: drill for drill in _ALL}


def chosen(names: Sequence[str], every: bool) -> list[Drill]:
    """In the catalogue's order; ConfigError for an unknown name, for none, and for names beside --all."""
    if every == bool(names):
        raise ConfigError("which_drill", "Name the drills to run, or give --all.", "See `pdctl drill list`.")
    for name in names:
        if name not in DRILLS:
            raise ConfigError("unknown_drill", f"There is no drill {name!r}.", nearest(name, DRILLS))
    return [drill for drill in _ALL if every or drill.name in names]
