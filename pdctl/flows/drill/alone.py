"""The drill of an engine that is restarted without its peers."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.diagnose.report import Report
from pdctl.fleet.model import Engine
from pdctl.flows.changing import doing
from pdctl.flows.co_restart import run as co_restart
from pdctl.flows.drill.kind import Drill, Scene
from pdctl.flows.foreign import is_foreign
from pdctl.flows.recovery.record import Record

FENCED = "fenced"


@dataclass(frozen=True)
class Alone(Drill):
    """A restart of one side. The bundled engine fences the old life and links the new one, which its peer
    table shows; one that keeps stale peer state (legacy-bootstrap, other kinds) wedges, which diagnose names
    and a co-restart cures.
    """

    spares: bool = False

    def expected(self, scene: Scene) -> tuple[str, ...]:
        return self.codes if self._stale(scene) else (FENCED,)

    def _stale(self, scene: Scene) -> bool:
        return is_foreign(self.subject(scene)) or bool(self._survivor(scene).get("legacy_bootstrap"))

    def _peer(self, scene: Scene) -> Engine:
        return scene.decode if self.subject(scene).name == scene.prefill.name else scene.prefill

    def _survivor(self, scene: Scene) -> dict[str, object]:
        return scene.now(self._peer(scene))

    def prepare(self, scene: Scene) -> Record:
        return Record()

    def inject(self, scene: Scene) -> None:
        unit = self.subject(scene)
        with doing(scene.ctx, f"restart/{unit.name}", unit.host, f"restart {unit.name}"):
            scene.ctx.units_of(unit).restart(unit.name)
        if self._stale(scene):
            scene.sent.send(2)

    def evidence(self, scene: Scene) -> str:
        unit = self.subject(scene)
        if is_foreign(unit):
            return f"{unit.name} was restarted"
        life = scene.now(unit).get("incarnation")
        new = life is not None and life != scene.state["incarnation"]
        return f"{unit.name} runs its life {life}, its peers their old ones" if new else ""

    def found(self, scene: Scene, report: Report) -> str:
        if self._stale(scene):
            return super().found(scene, report)
        unit = self.subject(scene)
        life = scene.now(unit).get("incarnation")
        peers = self._survivor(scene).get("peers")
        linked = (
            [p for p in peers if p["linked"] and p["incarnation"] == life] if isinstance(peers, list) else []
        )
        return f"{FENCED}: {self._peer(scene).name} linked to life {life}" if life and linked else ""

    def undo(self, scene: Scene) -> list[str]:
        """Where stale peer state may be kept, both sides are restarted together."""
        if not self._stale(scene):
            return []
        cell = scene.prefill.cell
        done = co_restart.run(scene.ctx, cell, scene.ctx.say).ok
        return [f"cell {cell}: " + ("restarted together" if done else "the co-restart did not end well")]
