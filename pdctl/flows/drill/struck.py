"""Drills that strike a process from outside: stopped by a signal, killed, or its router told to hold."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.fleet.model import Engine, Router
from pdctl.flows import admin, signals
from pdctl.flows.drill.kind import Drill, Scene
from pdctl.flows.foreign import is_foreign
from pdctl.flows.recovery.record import Record


def _main(scene: Scene, unit: Engine | Router) -> list[int]:
    pid = scene.ctx.units_of(unit).status([unit.name])[unit.name].pid
    return [] if pid is None else [pid]


@dataclass(frozen=True)
class Freeze(Drill):
    """SIGSTOP to one rank, or to an engine's main process and all its ranks."""

    rank: bool = False
    spares: bool = False

    def cannot(self, scene: Scene) -> str:
        unit = self.subject(scene)
        return f"the ranks of a {unit.kind} engine are not known" if self.rank and is_foreign(unit) else ""

    def prepare(self, scene: Scene) -> Record:
        unit = self.subject(scene)
        ranks = [int(r["pid"]) for r in scene.state.get("ranks", [])]
        pids = ranks[-1:] if self.rank else [*_main(scene, unit), *ranks]
        return Record(frozen=signals.processes(scene.ctx, unit, list(dict.fromkeys(pids))))

    def inject(self, scene: Scene) -> None:
        signals.send(scene.ctx, "STOP", scene.record.frozen)

    def evidence(self, scene: Scene) -> str:
        those = scene.record.frozen
        still = signals.stopped(scene.ctx, self.subject(scene), those)
        return f"pid {', '.join(str(p.pid) for p in those)} stands still" if those and still else ""


@dataclass(frozen=True)
class Kill(Drill):
    """SIGKILL to an engine's main process; its supervisor starts it anew."""

    spares: bool = False

    def prepare(self, scene: Scene) -> Record:
        unit = self.subject(scene)
        scene.state["killed"] = signals.processes(scene.ctx, unit, _main(scene, unit))
        return Record()

    def inject(self, scene: Scene) -> None:
        signals.send(scene.ctx, "KILL", scene.state["killed"])

    def evidence(self, scene: Scene) -> str:
        unit, those = self.subject(scene), scene.state["killed"]
        # Its supervisor has seen it, too: before that nobody can tell it from one that is slow.
        ended = signals.gone(scene.ctx, unit, those) and _main(scene, unit) != [p.pid for p in those]
        return f"pid {those[0].pid} is gone" if those and ended else ""


@dataclass(frozen=True)
class Hold(Drill):
    """Admissions held at the router, and nobody who would open them."""

    def subject(self, scene: Scene) -> Router:
        return scene.ctx.fleet.router

    def cannot(self, scene: Scene) -> str:
        kind = scene.ctx.fleet.router.kind
        return "" if kind == "bundled" else f"a router of kind {kind} holds nothing"

    def prepare(self, scene: Scene) -> Record:
        return Record(held=True, lives={self.subject(scene).name: str(scene.state["incarnation"])})

    def inject(self, scene: Scene) -> None:
        admin.post(scene.ctx, self.subject(scene).url, "hold")

    def evidence(self, scene: Scene) -> str:
        state = scene.now(self.subject(scene))
        return "the router holds admissions" if state.get("admission") == "held" else ""
