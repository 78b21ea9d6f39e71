"""One look at a fleet: every unit, engine and the router, each asked within a deadline."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from pdctl.adapters.picture import Engine as EnginePicture
from pdctl.adapters.picture import Reach, Sample
from pdctl.adapters.picture import Router as RouterPicture
from pdctl.errors import PdctlError
from pdctl.facts.missing import Missing, known
from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context
from pdctl.flows.deploy.desired import RELEASE
from pdctl.flows.party import Party
from pdctl.remote.fanout import fan_out
from pdctl.supervisor.observation import EngineLook, Observation, engine_look
from pdctl.units.spec import UnitSpec, UnitStatus


@dataclass(frozen=True)
class EngineStatus:
    engine: Engine
    unit: UnitStatus
    release: str
    sample: Sample[EnginePicture]


@dataclass(frozen=True)
class FleetStatus:
    """`at` is Unix seconds; `seconds` is what the look cost."""

    name: str
    at: float
    seconds: float
    router: Router
    router_unit: UnitStatus
    router_sample: Sample[RouterPicture]
    engines: tuple[EngineStatus, ...]

    @property
    def healthy(self) -> bool:
        """Everything runs under supervision, answers and takes requests, as far as its kind tells."""
        running = all(e.unit.state == "active" and _ready(e) for e in self.engines)
        return running and self._front_well and not self.strangers

    @property
    def strangers(self) -> tuple[str, ...]:
        """Engines that answer and that our router, which answers too, was never told of: idle for ever."""
        front = self.router_sample.picture
        if self.router.kind != "bundled" or not known(front):
            return ()
        told = {engine.instance for engine in front.engines}
        pairs = [e for e in self.engines if e.engine.role != "both" and known(e.sample.picture)]
        return tuple(e.engine.name for e in pairs if e.engine.name not in told)

    @property
    def _front_well(self) -> bool:
        sample = self.router_sample
        if self.router.kind == "none":
            return True
        return sample.reach is Reach.OK and known(sample.picture) and self.router_unit.state == "active"

    def document(self) -> dict[str, Any]:
        """The --json document, schema 1: the engines' own state documents, complete, under `state`."""
        return {
            "schema": 1,
            "fleet": self.name,
            "at": self.at,
            "healthy": self.healthy,
            "strangers": list(self.strangers),
            "router": {
                "name": self.router.name,
                "url": self.router.url,
                "unit": asdict(self.router_unit),
                "reach": str(self.router_sample.reach),
                "detail": self.router_sample.detail,
                "kind": self.router.kind,
                "workers": _workers(self.router_sample.picture),
                "state": self.router_sample.documents.get("/v1/state"),
                "requests": self.router_sample.documents.get("/v1/requests"),
            },
            "engines": [
                {
                    "name": e.engine.name,
                    "cell": e.engine.cell,
                    "role": e.engine.role,
                    "host": e.engine.host,
                    "url": e.engine.url,
                    "profile": e.engine.profile,
                    "release": e.release,
                    "unit": asdict(e.unit),
                    "reach": str(e.sample.reach),
                    "detail": e.sample.detail,
                    "kind": e.engine.kind,
                    "picture": _shown(e.sample.picture),
                    "state": e.sample.documents.get("/v1/state"),
                }
                for e in self.engines
            ],
        }


def _ready(e: EngineStatus) -> bool:
    return known(e.sample.picture) and e.sample.picture.ready


def _shown(picture: EnginePicture | Missing) -> dict[str, Any] | None:
    """What any kind of engine shows: queue depths, KV pages, timers, versions."""
    if isinstance(picture, Missing):
        return None
    pages = picture.pages
    return {
        "ready": picture.ready,
        "not_ready": list(picture.not_ready),
        "queues": {name: queue.depth for name, queue in picture.queues.items()},
        "pages": asdict(pages) if known(pages) else None,
        "timeouts": {t.name: t.value for t in picture.timeouts.values()},
        "versions": picture.versions,
    }


def _workers(picture: RouterPicture | Missing) -> list[dict[str, Any]] | None:
    """The engines as the router sees them."""
    if isinstance(picture, Missing):
        return None
    return [
        {"url": e.url, "role": e.role, "ready": e.ready, "active": e.active, "cordoned": e.cordoned}
        for e in picture.engines
    ]


def collect_status(ctx: Context, deadline: float = 2.0) -> FleetStatus:
    """`deadline` bounds each probe, seconds. Nothing is raised for what does not answer."""
    begin = time.monotonic()
    fleet = ctx.fleet
    hosts = list(dict.fromkeys(u.host for u in fleet.units()))
    units = fan_out(hosts, lambda host: ctx.units(host).status())
    specs = fan_out(hosts, lambda host: ctx.units(host).specs())
    engines = list(fleet.engines())
    samples, front = asyncio.run(_ask(ctx, engines, deadline))
    return FleetStatus(
        name=fleet.name,
        at=time.time(),
        seconds=time.monotonic() - begin,
        router=fleet.router,
        router_unit=_unit(units, fleet.router),
        router_sample=front,
        engines=tuple(
            EngineStatus(e, _unit(units, e), _release(specs[e.host], e.name), sample)
            for e, sample in zip(engines, samples, strict=True)
        ),
    )


async def _ask(
    ctx: Context, engines: list[Engine], deadline: float
) -> tuple[list[Sample[EnginePicture]], Sample[RouterPicture]]:
    units: list[Engine | Router] = [*engines, ctx.fleet.router]
    async with ctx.async_client(keep=0) as client:
        asking = [Party(ctx, unit).sample(client, deadline) for unit in units]
        *samples, front = await asyncio.gather(*asking)
    return samples, front


def observation(status: FleetStatus) -> Observation:
    """The same look as the supervisor's, for what is drawn of both."""
    engines = tuple(
        engine_look(
            EngineLook(e.engine.name, e.engine.cell, e.engine.role, e.engine.host, e.engine.kind), e.sample
        )
        for e in status.engines
    )
    return Observation(status.name, 1, status.at, status.at, engines, seconds=status.seconds)


def _unit(units: dict[str, dict[str, UnitStatus] | PdctlError], unit: Engine | Router) -> UnitStatus:
    found = units.get(unit.host, {})
    if isinstance(found, PdctlError):
        return UnitStatus(unit.name, "unknown", found.message)
    return found.get(unit.name, UnitStatus(unit.name, "missing", "not deployed"))


def _release(specs: dict[str, UnitSpec] | PdctlError, name: str) -> str:
    spec = None if isinstance(specs, PdctlError) else specs.get(name)
    return spec.env.get(RELEASE, "") if spec else ""
