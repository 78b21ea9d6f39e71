"""The files a deploy writes on a host: tokens, env files, units. Each is written only when it differs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pdctl.errors import PdctlError
from pdctl.flows.context import Context
from pdctl.flows.desired import DesiredUnit, token_files
from pdctl.plan.step import Step
from pdctl.transport.base import Transport
from pdctl.transport.command import MASK
from pdctl.units.envfile import parse_env
from pdctl.units.spec import UnitSpec

_SECRET = re.compile(r"TOKEN(?!.*_FILE$)|SECRET|PASSWORD|API_KEY|CREDENTIAL", re.IGNORECASE)


def file_steps(ctx: Context, host: str, units: Sequence[DesiredUnit]) -> list[Step]:
    steps = [
        _token_step(ctx, host, path, data)
        for path, data in token_files(ctx.fleet, ctx.fleet.host_paths(host)).values()
    ]
    for unit in units:
        steps += [_env_step(ctx, host, unit), _unit_step(ctx, host, unit)]
    return steps


def read_text(transport: Transport, path: str) -> str | None:
    """None for a file that is not there."""
    try:
        return transport.get(path).decode("utf-8", "replace")
    except PdctlError as error:
        if error.code == "no_file":
            return None
        raise


def _token_step(ctx: Context, host: str, path: str, data: bytes) -> Step:
    transport = ctx.transport(host)
    name = path.rpartition("/")[2]

    def check() -> Sequence[str]:
        there = read_text(transport, path)
        if there == data.decode():
            return ()
        return [f"{name}: {'not there' if there is None else 'another one'} -> {MASK}"]

    return Step(
        f"{host}/{name}", host, f"write {name}, mode 0600", check, lambda: transport.put(data, path, 0o600)
    )


def _env_step(ctx: Context, host: str, unit: DesiredUnit) -> Step:
    transport = ctx.transport(host)
    path = ctx.fleet.host_paths(host).env(unit.name)

    def check() -> Sequence[str]:
        there = read_text(transport, path)
        return () if there == unit.env_text() else env_differences(parse_env(there or ""), unit.env)

    return Step(
        f"{host}/env/{unit.name}",
        host,
        f"write the env file of {unit.name}, mode 0600",
        check,
        lambda: transport.put(unit.env_text().encode(), path, 0o600),
    )


def env_differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """NAME: old -> new, secrets masked; never empty, since the file itself differs."""
    lines = [
        f"{name}: {_shown(name, before.get(name))} -> {_shown(name, after.get(name))}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return lines or ["written differently"]


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return "(unset)"
    return MASK if _SECRET.search(name) else value


def _unit_step(ctx: Context, host: str, unit: DesiredUnit) -> Step:
    def check() -> Sequence[str]:
        there = ctx.units(host).installed(unit.name)
        return () if there == unit.spec else unit_differences(there, unit.spec)

    return Step(
        f"{host}/unit/{unit.name}",
        host,
        f"install the unit {unit.name}",
        check,
        lambda: ctx.units(host).install(unit.spec),
    )


def unit_differences(before: UnitSpec | None, after: UnitSpec) -> list[str]:
    if before is None:
        return ["new unit"]
    old, new = asdict(before), asdict(after)
    lines = []
    for key, value in new.items():
        if old[key] == value or key == "inputs":
            continue
        if key == "argv":
            gone = [w for w in old[key] if w not in value]
            come = [w for w in value if w not in old[key]]
            lines.append(f"argv: {' '.join(gone) or '(nothing)'} -> {' '.join(come) or '(nothing)'}")
        else:
            lines.append(f"{key}: {old[key]} -> {value}")
    return lines or ["its inputs changed"]
