"""One look at a fleet: every unit, engine and the router, each asked within a deadline."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from pdctl.adapters.bundled import ask_engine, ask_router
from pdctl.adapters.picture import Engine as EnginePicture
from pdctl.adapters.picture import Router as RouterPicture
from pdctl.adapters.picture import Sample
from pdctl.errors import PdctlError
from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context
from pdctl.flows.desired import RELEASE
from pdctl.remote.fanout import fan_out
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
        """Everything runs under supervision, answers and takes requests."""
        units = [self.router_unit, *(e.unit for e in self.engines)]
        return (
            all(unit.state == "active" for unit in units)
            and isinstance(self.router_sample.picture, RouterPicture)
            and all(
                isinstance(e.sample.picture, EnginePicture) and e.sample.picture.ready for e in self.engines
            )
        )

    def document(self) -> dict[str, Any]:
        """The --json document, schema 1: the engines' own state documents, complete, under `state`."""
        return {
            "schema": 1,
            "fleet": self.name,
            "at": self.at,
            "healthy": self.healthy,
            "router": {
                "name": self.router.name,
                "url": self.router.url,
                "unit": asdict(self.router_unit),
                "reach": str(self.router_sample.reach),
                "detail": self.router_sample.detail,
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
                    "state": e.sample.documents.get("/v1/state"),
                }
                for e in self.engines
            ],
        }


def collect_status(ctx: Context, deadline: float = 2.0) -> FleetStatus:
    """`deadline` bounds each probe, seconds. Nothing is raised for what does not answer."""
    begin = time.monotonic()
    fleet = ctx.fleet
    hosts = list(dict.fromkeys(u.host for u in fleet.units()))
    units = fan_out(hosts, lambda host: ctx.units(host).status())
    specs = fan_out(hosts, lambda host: ctx.units(host).specs())
    engines = list(fleet.engines())
    samples, front = asyncio.run(_ask(ctx, [e.url for e in engines], deadline))
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
    ctx: Context, urls: list[str], deadline: float
) -> tuple[list[Sample[EnginePicture]], Sample[RouterPicture]]:
    async with ctx.async_client() as client:
        asking = asyncio.create_task(ask_router(client, ctx.fleet.router.url, deadline))
        samples = await asyncio.gather(*(ask_engine(client, url, deadline) for url in urls))
        return list(samples), await asking


def _unit(units: dict[str, dict[str, UnitStatus] | PdctlError], unit: Engine | Router) -> UnitStatus:
    found = units[unit.host]
    if isinstance(found, PdctlError):
        return UnitStatus(unit.name, "unknown", found.message)
    return found.get(unit.name, UnitStatus(unit.name, "missing", "not deployed"))


def _release(specs: dict[str, UnitSpec] | PdctlError, name: str) -> str:
    spec = None if isinstance(specs, PdctlError) else specs.get(name)
    return spec.env.get(RELEASE, "") if spec else ""
