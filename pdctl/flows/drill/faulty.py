"""Drills that arm a fault point of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.fleet.model import Engine
from pdctl.flows.drill.kind import Drill, Scene
from pdctl.flows.drill.points import FAULTS, arm
from pdctl.flows.recovery.record import Fault, Record

# Longer than the ledger takes to settle, and than a healthy request stays in one stage.
OLD = 4.0


@dataclass(frozen=True)
class FaultDrill(Drill):
    """`point` with `count` and `value`; `stage`: where a request then stands too long, "" when the hits of
    the point are what shows it.
    """

    point: str = ""
    count: int = 0
    value: float = 0.0
    stage: str = ""
    token: bool = True

    def subject(self, scene: Scene) -> Engine:
        return scene.prefill if FAULTS[self.point][0] == "prefill" else scene.decode

    def prepare(self, scene: Scene) -> Record:
        engine = self.subject(scene)
        fault = Fault(engine.name, self.point, self.count, self.value)
        return Record(faults=[fault], lives={engine.name: str(scene.state["incarnation"])})

    def inject(self, scene: Scene) -> None:
        arm(scene.ctx, self.subject(scene), self.point, self.count, self.value)

    def evidence(self, scene: Scene) -> str:
        state = scene.now(self.subject(scene))
        hits = _hits(state, self.point) - _hits(scene.state, self.point)
        if not self.stage:
            return f"{self.point} acted {hits} times" if hits > 0 else ""
        old = [
            r["id"] for r in state.get("requests", []) if r["stage"] == self.stage and r["stage_age_s"] > OLD
        ]
        spent = hits >= self.count
        return f"{old[0]} is {self.stage} for over {OLD:g} s" if old and spent else ""


def _hits(state: dict[str, object], point: str) -> int:
    faults = state.get("faults")
    hits = faults.get("hits", {}) if isinstance(faults, dict) else {}
    return int(hits.get(point, 0))
