"""What a drill is: what it does to whom, what should find it and how soon, and how it is undone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from pdctl.diagnose.report import Report
from pdctl.diagnose.rule import Severity
from pdctl.fleet.model import Engine, Router
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.flows.deploy.gate import unready
from pdctl.flows.drill.requests import Requests
from pdctl.flows.foreign import is_foreign
from pdctl.flows.recovery.record import Record


@dataclass
class Scene:
    """One playing of a drill: its edge, `on` the engine that was asked for, the drill's own requests.

    `known` are findings (code, subject) that stood before, `state` what the subject said of itself then.
    """

    ctx: Context
    prefill: Engine
    decode: Engine
    on: Engine | None
    sent: Requests
    known: set[tuple[str, str]] = field(default_factory=set)
    state: dict[str, Any] = field(default_factory=dict)
    record: Record = field(default_factory=Record)

    def now(self, unit: Engine | Router) -> dict[str, Any]:
        return {} if is_foreign(unit) else admin.state(self.ctx, unit.url)


@dataclass(frozen=True)
class Drill(ABC):
    """`does` says it in one sentence; diagnose names one of `codes` within `within` seconds.

    `ruins` requests of its own are lost to it; `spares`: every other request is answered, at the latest once
    it is undone. `token`: the engines must take faults (`drill = true` under [fleet]).
    """

    name: str
    does: str
    codes: tuple[str, ...]
    within: float
    ruins: int = 0
    spares: bool = True
    token: bool = False

    def subject(self, scene: Scene) -> Engine | Router:
        """Who is struck; by default the decode of the edge."""
        return scene.on or scene.decode

    def cannot(self, scene: Scene) -> str:
        """Why it cannot be played there; "" when it can."""
        if self.token and not scene.ctx.fleet.drill:
            return "the engines take no faults: `drill = true` under [fleet], then `pdctl deploy`"
        if self.token and is_foreign(self.subject(scene)):
            return (
                f"{self.subject(scene).name} is of kind {self.subject(scene).kind}, which has no fault points"
            )
        return ""

    @abstractmethod
    def prepare(self, scene: Scene) -> Record:
        """What is going to be changed, to be on disk before it is."""

    @abstractmethod
    def inject(self, scene: Scene) -> None:
        """Change it, and send what shows it."""

    @abstractmethod
    def evidence(self, scene: Scene) -> str:
        """What shows that it took effect; "" as long as nothing does."""

    def expected(self, scene: Scene) -> tuple[str, ...]:
        """Codes of diagnose, one of which should lead all that is new."""
        return self.codes

    def found(self, scene: Scene, report: Report) -> str:
        """What was found, "" as long as the right thing does not lead."""
        fresh = news(scene, report)
        return f"{fresh[0][0]} {fresh[0][1]}" if fresh and fresh[0][0] in self.expected(scene) else ""

    def undo(self, scene: Scene) -> list[str]:
        """What has to be done beside what the recovery record says, one sentence each."""
        return []

    def unmended(self, scene: Scene) -> str:
        """What is not as before yet; "" when everything is."""
        missing = unready(scene.ctx)
        return "; ".join(f"{name}: {why}" for name, why in missing.items())


def news(scene: Scene, report: Report) -> list[tuple[str, str]]:
    """(code, subject) of each finding above info that did not stand before, the leader first."""
    found = [p.finding for p in report.verdict.findings if p.finding.severity > Severity.INFO]
    return [(f.code, f.subject) for f in found if (f.code, f.subject) not in scene.known]
