"""The stages of a co-restart for a cell of another kind's engines: the same order, and less is known.

Nothing holds requests back and nothing drains, so what comes meanwhile may fail; links are not shown. What
is proved is that the old processes are gone, that the new ones are healthy, and that requests are answered.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pdctl.fleet.model import Engine
from pdctl.flows.canary import engine_canary, router_canary
from pdctl.flows.changing import doing
from pdctl.flows.co_restart.report import Start
from pdctl.flows.co_restart.states import Machine, Stage
from pdctl.flows.co_restart.steps import StageFailed, Steps, together
from pdctl.flows.edge_canary import send
from pdctl.flows.foreign import START, knows_edges, unhealthy
from pdctl.flows.ready import observed
from pdctl.flows.waiting import until


class ForeignSteps(Steps):
    """One co-restart of one such cell; a life is told by its process."""

    _routed = True

    def deadline(self, stage: Stage) -> float:
        starting = stage in (Stage.START_PREFILL, Stage.START_DECODE)
        return START if starting and self._wait is None else super().deadline(stage)

    def truth(self, machine: Machine) -> list[str]:
        if machine.stage is Stage.DONE:
            return ["Both sides run new lives and are healthy; whether they are linked is not known."]
        if machine.stage is Stage.UNTOUCHED:
            return ["Nothing was stopped."]
        last = machine.passed[-1] if machine.passed else None
        return [f"The last stage that was passed: {last or 'none'}. Nothing holds requests back."]

    @property
    def routed(self) -> bool:
        """Nothing is lost by the restart itself where the fleet file names no router."""
        return self._routed

    def hold(self, seconds: float) -> None:
        """Nothing to hold: only what lives now is remembered."""
        for engine in self.cell.engines:
            self._was[engine.name] = self._life(engine)
        router = self._ctx.fleet.router
        if router.kind == "none":
            self.notes.append(
                "The fleet file names no router: nothing was held, and nothing asked through it."
            )
        else:
            status = self._ctx.units_of(router).status([router.name])[router.name]
            self._routed = status.state in ("active", "activating")
            self.notes.append(
                f"A router of kind {router.kind} holds nothing: requests may have failed meanwhile."
            )
        self._remember()

    def _life(self, engine: Engine) -> str | None:
        pid = self._ctx.units_of(engine).status([engine.name])[engine.name].pid
        return None if pid is None else f"pid {pid}"

    def drain(self, seconds: float) -> None:
        kinds = ", ".join(sorted({e.kind for e in self.cell.engines}))
        self.notes.append(f"Nothing was drained: {kinds} ends what it can when it is told to stop.")

    def start(self, engines: Sequence[Engine], seconds: float) -> None:
        """A process that was not there before, and its own health says that it takes requests."""

        def one(engine: Engine) -> None:
            began = time.monotonic()
            with doing(self._ctx, f"start/{engine.name}", engine.host, f"start {engine.name}"):
                self._ctx.units_of(engine).start(engine.name)
            until(lambda: self._unborn(engine), seconds, 0.5)
            took = time.monotonic() - began
            life = str(self._life(engine))
            self.starts[engine.name] = Start(engine.name, took, took, life, self._was.get(engine.name))

        together(engines, one)

    def _unborn(self, engine: Engine) -> str:
        self._alive(engine)
        life = self._life(engine)
        if life is None or life == self._was.get(engine.name):
            return f"{engine.name} shows no new process"
        why = unhealthy(self._ctx, engine)
        return f"{engine.name}: {why}" if why else ""

    def link(self, seconds: float) -> None:
        for prefill, decode in self.cell.edges:
            self.notes.append(f"Whether {prefill.name} and {decode.name} are linked is not known.")

    def canary(self, seconds: float) -> None:
        """Over every edge whose protocol is known, to engines that do both halves, and through the router."""
        end = time.monotonic() + seconds

        def left() -> float:
            return max(1.0, end - time.monotonic())

        for prefill, decode in self.cell.edges:
            where = f"{prefill.name} -> {decode.name}"
            if not knows_edges(prefill, decode):
                self.notes.append(
                    f"No canary over {where}: how {decode.kind} hands over is not known to pdctl."
                )
                continue
            result = send(self._ctx, prefill, decode, "small", left())
            self.canaries.append(result)
            if result.problem:
                raise StageFailed("canary_failed", f"The canary over {where}: {result.problem}.")
        for engine in self.cell.engines:
            if engine.role == "both":
                engine_canary(self._ctx, engine, left())
        if self._ctx.fleet.router.kind != "none" and self.routed:
            until(lambda: unhealthy(self._ctx, self._ctx.fleet.router), left(), 0.5)
            router_canary(self._ctx, left())

    def resume(self, seconds: float) -> None:
        if not self.routed:
            self.notes.append("Nothing is served yet: start the router with `pdctl deploy`.")

    def observe(self) -> list[str]:
        """What each engine looks like now, in one sentence each; never raises."""
        return observed(self._ctx, self.cell.engines)
