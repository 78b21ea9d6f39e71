"""The files a deploy writes on a host: tokens, env files, units. Each is written only when it differs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, replace

from pdctl.fleet.secret import is_secret
from pdctl.flows.context import Context
from pdctl.flows.deploy.desired import RELEASE, DesiredUnit, token_files
from pdctl.flows.deploy.look import HostState
from pdctl.plan.step import Step
from pdctl.transport.command import MASK
from pdctl.units.base import Drift
from pdctl.units.envfile import parse_env
from pdctl.units.spec import UnitSpec, UnitStatus


def token_steps(ctx: Context, state: HostState, group: str, wave: str) -> list[Step]:
    files = token_files(ctx.fleet, ctx.fleet.host_paths(state.name)).values()
    return [_token_step(ctx, state, path, data, group, wave) for path, data in files]


def unit_file_steps(ctx: Context, state: HostState, unit: DesiredUnit, group: str, wave: str) -> list[Step]:
    return [_env_step(ctx, state, unit, group, wave), _unit_step(ctx, state, unit, group, wave)]


def _token_step(ctx: Context, state: HostState, path: str, data: bytes, group: str, wave: str) -> Step:
    name = path.rpartition("/")[2]
    digest = hashlib.sha256(data).hexdigest()

    def check() -> Sequence[str]:
        there = state.private.get(name)
        if there == digest:
            return ()
        return [f"{name}: {'not there' if there is None else 'another one'} -> {MASK}"]

    def write() -> None:
        ctx.transport(state.name).put(data, path, 0o600)
        state.private[name] = digest

    what = f"write {name}, mode 0600"
    return Step(f"{state.name}/{name}", state.name, what, check, write, group=group, wave=wave)


def _env_step(ctx: Context, state: HostState, unit: DesiredUnit, group: str, wave: str) -> Step:
    text = unit.env_text()

    def check() -> Sequence[str]:
        there = state.env.get(unit.name)
        return () if there == text else env_differences(parse_env(there or ""), unit.env, unit.secret)

    def write() -> None:
        ctx.transport(state.name).put(text.encode(), unit.spec.env_file, 0o600)
        state.env[unit.name] = text

    id, what = f"{state.name}/env/{unit.name}", f"write the env file of {unit.name}, mode 0600"
    return Step(id, state.name, what, check, write, group=group, wave=wave)


def env_differences(
    before: Mapping[str, str], after: Mapping[str, str], secret: Set[str] = frozenset()
) -> list[str]:
    """NAME: old -> new, secrets masked; never empty, since the file itself differs."""
    lines = [
        f"{name}: {_shown(name, before.get(name), secret)} -> {_shown(name, after.get(name), secret)}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return lines or ["written differently"]


def _shown(name: str, value: str | None, secret: Set[str]) -> str:
    if value is None:
        return "(unset)"
    return MASK if name in secret or is_secret(name, value) else value


def _unit_step(ctx: Context, state: HostState, unit: DesiredUnit, group: str, wave: str) -> Step:
    def check() -> Sequence[str]:
        there = state.specs.get(unit.name)
        if there != unit.spec:
            return unit_differences(there, unit.spec)
        drift = state.drift.get(unit.name, ())
        return [d.what + _behind(state.status(unit.name), d) for d in drift]

    def install() -> None:
        ctx.units(state.name).install(unit.spec)
        state.specs[unit.name] = unit.spec
        state.drift.pop(unit.name, None)

    id, what = f"{state.name}/unit/{unit.name}", f"install the unit {unit.name}"
    return Step(id, state.name, what, check, install, group=group, wave=wave)


def _behind(status: UnitStatus, drift: Drift) -> str:
    """What a change of a unit's files means for the process that runs, which a deploy may leave as it is."""
    if status.started_at is None or drift.ours:
        return ""
    if drift.at is None or drift.ours is None:
        return f" (whether {status.name} was started with that cannot be told; it is not restarted for it)"
    if drift.at <= status.started_at:
        return ""
    return f" (changed after {status.name} was started, which is not restarted)"


def unit_differences(before: UnitSpec | None, after: UnitSpec) -> list[str]:
    if before is None:
        return ["new unit"]
    lines = []
    if before.env.get(RELEASE) != after.env.get(RELEASE):
        lines.append(f"release: {before.env.get(RELEASE) or 'none'} -> {after.env.get(RELEASE) or 'none'}")
        # What follows from that is no news of its own.
        env = {**before.env, **{n: after.env[n] for n in (RELEASE, "PYTHONPATH") if n in after.env}}
        before = replace(before, argv=(after.argv[0], *before.argv[1:]), cwd=after.cwd, env=env)
    old, new = asdict(before), asdict(after)
    for key, value in new.items():
        if old[key] == value or key == "inputs":
            continue
        if key == "argv":
            was, now = _flagged(old[key]), _flagged(value)
            gone, come = [w for w in was if w not in now], [w for w in now if w not in was]
            lines.append(f"argv: {' '.join(gone) or '(nothing)'} -> {' '.join(come) or '(nothing)'}")
        elif key == "env":
            lines += [f"environment {line}" for line in env_differences(old[key], value)]
        else:
            lines.append(f"{key}: {old[key]} -> {value}")
    return lines or ["its inputs changed"]


def _flagged(argv: Sequence[str]) -> list[str]:
    """The words of a command line, each option together with the value that follows it."""
    words: list[str] = []
    for word in argv:
        if words and words[-1].startswith("--") and " " not in words[-1] and not word.startswith("-"):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words
