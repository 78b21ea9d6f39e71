"""One look at a fleet: every unit, engine and the router, each asked within a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from pdctl.adapters.picture import Engine as EnginePicture
from pdctl.adapters.picture import Reach, Sample
from pdctl.adapters.picture import Router as RouterPicture
from pdctl.errors import PdctlError, UnreachableError
from pdctl.facts.missing import Missing, known
from pdctl.fleet.model import Engine, Router
from pdctl.flows.context import Context
from pdctl.flows.deploy.desired import RELEASE
from pdctl.flows.party import Party
from pdctl.remote.fanout import begin
from pdctl.supervisor.observation import EngineLook, Observation, engine_look
from pdctl.units.spec import UnitSpec, UnitStatus

T = TypeVar("T")
# Seconds that another host has to tell of its units, and that its engines wait for the way to it.
HOST_DEADLINE, OPENS = 4.0, 2.0
_SILENT = (Reach.UNREACHABLE, Reach.TIMED_OUT)


@dataclass(frozen=True)
class EngineStatus:
    engine: Engine
    unit: UnitStatus
    release: str
    sample: Sample[EnginePicture]


@dataclass(frozen=True)
class FleetStatus:
    """`at` is Unix seconds, `seconds` what the look cost, `silent` hosts that told nothing, and why."""

    name: str
    at: float
    seconds: float
    router: Router
    router_unit: UnitStatus
    router_sample: Sample[RouterPicture]
    engines: tuple[EngineStatus, ...]
    silent: Mapping[str, str] = field(default_factory=dict)

    @property
    def unreachable(self) -> dict[str, str]:
        """Hosts of which nothing answers, neither the host nor a port of an engine, and why."""
        alive = {e.engine.host for e in self.engines if e.sample.reach not in _SILENT}
        if self.router.kind != "none" and self.router_sample.reach not in _SILENT:
            alive.add(self.router.host)
        return {host: why for host, why in self.silent.items() if host not in alive}

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
            "unreachable": self.unreachable,
            "silent": dict(self.silent),
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
    began = time.monotonic()
    fleet = ctx.fleet
    engines = list(fleet.engines())
    hosts, samples, front = asyncio.run(_look(ctx, engines, deadline))
    return FleetStatus(
        name=fleet.name,
        at=time.time(),
        seconds=time.monotonic() - began,
        router=fleet.router,
        router_unit=_unit(hosts, fleet.router),
        router_sample=front,
        engines=tuple(
            EngineStatus(e, _unit(hosts, e), hosts[e.host].release(e.name), sample)
            for e, sample in zip(engines, samples, strict=True)
        ),
        silent={name: h.units.message for name, h in hosts.items() if isinstance(h.units, UnreachableError)},
    )


@dataclass(frozen=True)
class _Host:
    """What one host told; no specs of one that told of its units and then no more."""

    units: dict[str, UnitStatus] | PdctlError
    specs: dict[str, UnitSpec]

    def release(self, name: str) -> str:
        spec = self.specs.get(name)
        return spec.env.get(RELEASE, "") if spec else ""


async def _look(
    ctx: Context, engines: list[Engine], deadline: float
) -> tuple[dict[str, _Host], list[Sample[EnginePicture]], Sample[RouterPicture]]:
    """Hosts and engines side by side: a host that is gone costs its own deadline and nobody else's."""
    names = list(dict.fromkeys(u.host for u in ctx.fleet.units()))
    opened = {name: asyncio.Event() for name in names}
    looking = asyncio.gather(*(_host(ctx, name, opened[name]) for name in names))
    samples, front = await _ask(ctx, engines, opened, deadline)
    return dict(zip(names, await looking, strict=True)), samples, front


async def _host(ctx: Context, name: str, opened: asyncio.Event) -> _Host:
    """`opened` is set when there is a way to it, or none."""
    local = ctx.fleet.hosts[name].local
    if local:
        opened.set()
    end = time.monotonic() + HOST_DEADLINE

    async def within(act: Callable[[], T]) -> T:
        """This machine's own calls have their own deadlines."""
        left = None if local else max(0.0, end - time.monotonic())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(begin(act)), left)
        except TimeoutError:
            message = f"{name} did not answer within {HOST_DEADLINE:g} s."
            raise UnreachableError(
                "host_silent", message, "Is the host up, and the way to it open?"
            ) from None

    try:
        units = await within(lambda: ctx.units(name).status())
    except PdctlError as error:
        return _Host(error, {})
    finally:
        opened.set()
    try:
        return _Host(units, await within(lambda: ctx.units(name).specs()))
    except PdctlError:
        return _Host(units, {})


async def _ask(
    ctx: Context, engines: Sequence[Engine], opened: Mapping[str, asyncio.Event], deadline: float
) -> tuple[list[Sample[EnginePicture]], Sample[RouterPicture]]:
    units: list[Engine | Router] = [*engines, ctx.fleet.router]
    async with ctx.async_client(keep=0) as client:

        async def one(unit: Engine | Router) -> Sample[Any]:
            if unit.host in opened:
                with suppress(TimeoutError):
                    await asyncio.wait_for(opened[unit.host].wait(), OPENS)
            return await Party(ctx, unit).sample(client, deadline)

        *samples, front = await asyncio.gather(*map(one, units))
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


def _unit(hosts: Mapping[str, _Host], unit: Engine | Router) -> UnitStatus:
    found = hosts[unit.host].units if unit.host in hosts else {}
    if isinstance(found, PdctlError):
        return UnitStatus(unit.name, "unknown", found.message)
    return found.get(unit.name, UnitStatus(unit.name, "missing", "not deployed"))
