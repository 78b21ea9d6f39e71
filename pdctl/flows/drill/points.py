"""Arm and disarm fault points of engines; only where the fleet file says drill = true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pdctl.errors import ConfigError, PdctlError
from pdctl.fleet.model import Engine, Fleet
from pdctl.fleet.names import nearest
from pdctl.flows import admin
from pdctl.flows.context import Context
from pdctl.remote.fanout import fan_out

ANY = "prefill or decode"
# Fault point -> (role of the engine that has it, what it does).
FAULTS: dict[str, tuple[str, str]] = {
    "stall-transfer": ("prefill", "writes of the next `count` rooms are held and never posted"),
    "slow-transfer": ("prefill", "every write waits `value` seconds"),
    "fail-post": ("prefill", "a write ends in an error behind its first slice"),
    "lose-want": ("prefill", "decode's request for pages is dropped"),
    "lose-done": ("prefill", "the word that all is written is not sent"),
    "refuse-pages": ("decode", "no request is granted pages"),
    "stop-steps": (ANY, "no batch is run, all else goes on"),
}


@dataclass(frozen=True)
class Point:
    """One armed fault point. `count` 0 stays until disarmed."""

    engine: str
    name: str
    count: int
    value: float
    hits: int


def need_drill(fleet: Fleet) -> None:
    """ConfigError when the engines of this fleet take no faults."""
    if not fleet.drill:
        raise ConfigError(
            "no_drill",
            f"Fleet {fleet.name} is not marked drillable, so no fault can be injected.",
            "Set `drill = true` under [fleet] and run `pdctl deploy`.",
        )


def arm(ctx: Context, engine: Engine, name: str, count: int = 1, value: float = 0.0) -> None:
    """ConfigError for an unknown fault or the wrong role; PdctlError when the engine refuses."""
    need_drill(ctx.fleet)
    if name not in FAULTS:
        raise ConfigError("unknown_fault", f"{name} is not a fault point.", nearest(name, FAULTS))
    role = FAULTS[name][0]
    if role not in (engine.role, ANY):
        raise ConfigError("wrong_role", f"{name} is a fault of a {role}; {engine.name} is a {engine.role}.")
    body = {"name": name, "armed": True, "count": count, "value": value}
    admin.post(ctx, engine.url, "faults", body, drill=True)


def disarm(ctx: Context, engine: Engine) -> list[str]:
    """Disarm everything on `engine`; the names of what was armed."""
    need_drill(ctx.fleet)
    names = [point.name for point in armed(ctx, engine)]
    for name in names:
        admin.post(ctx, engine.url, "faults", {"name": name, "armed": False}, drill=True)
    return names


def armed(ctx: Context, engine: Engine) -> list[Point]:
    """UnreachableError when the engine does not answer."""
    faults: dict[str, Any] = admin.get(ctx, engine.url, "/v1/state").get("faults", {})
    return [Point(engine.name, f["name"], f["count"], f["value"], f["hits"]) for f in faults.get("armed", [])]


def all_armed(ctx: Context, engines: Sequence[Engine]) -> tuple[list[Point], dict[str, str]]:
    """What is armed on each that answers, and engine -> why not for the others."""
    asked = fan_out({e.name: e for e in engines}, lambda name: armed(ctx, ctx.fleet.engine(name)))
    silent = {name: told.message for name, told in asked.items() if isinstance(told, PdctlError)}
    return [p for told in asked.values() if not isinstance(told, PdctlError) for p in told], silent
