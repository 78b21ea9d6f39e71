"""The release of a host as steps: its root, the Python environment, the code, and the switch to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet, Host
from pdctl.fleet.place import host_key
from pdctl.flows.context import Context
from pdctl.flows.deploy.look import HostState
from pdctl.plan.step import Step
from pdctl.release.build import Release, build_release, file_differences
from pdctl.release.lock import Lock
from pdctl.release.runtime import Runtime, existing, made
from pdctl.release.wheels import Wheel, fetch, given_wheels, pip_wheel

INSTALL = "install"


@dataclass(frozen=True)
class HostRelease:
    """What a host is to have; `wheels` is the folder of its wheelhouse, where the fleet file names one."""

    release: Release
    runtime: Runtime
    wheels: Path | None


def release_for(fleet: Fleet, state: HostState, files: dict[str, bytes], lock: Lock) -> HostRelease:
    """ConfigError when engines cannot run on that host's Python."""
    host = fleet.hosts[state.name]
    folder = _folder(fleet, host)
    if host.runtime == "existing":
        runtime = existing(state.facts, host)
    else:
        given = given_wheels(folder, lock, host_key(host, "wheels")) if folder else []
        runtime = made(state.facts, host, lock, [w.sha256 for w in given])
    return HostRelease(build_release(files, runtime), runtime, folder)


def _folder(fleet: Fleet, host: Host) -> Path | None:
    return fleet.dir / Path(host.spec.wheels).expanduser() if host.spec.wheels else None


def install_steps(ctx: Context, state: HostState, wanted: HostRelease, lock: Lock) -> list[Step]:
    """Nothing here touches what runs."""
    release = wanted.release
    step = partial(Step, host=state.name, group=INSTALL, wave=INSTALL)

    def no_venv() -> Sequence[str]:
        id = release.venv
        return [f"environment {id}: not there"] if id and id not in state.installed.venvs else ()

    def no_release() -> Sequence[str]:
        if release.id in state.installed.releases:
            return ()
        before = state.manifest.get("files", {})
        changed = file_differences(before, release.manifest["files"]) if before else []
        return [f"release {release.id} is not installed", *changed, *_other_runtime(state, release)]

    def install() -> None:
        state.installed = state.tool.install(release, state.manifest)

    size = sum(map(len, release.files.values())) // 1024
    what = f"install release {release.id} ({len(release.files)} files, {size} KiB) and ask its version"
    return [
        step(
            id=f"{state.name}/venv",
            describe=f"make the Python environment {release.venv} ({_source(wanted, lock)})",
            check=no_venv,
            apply=lambda: _make_venv(ctx, state, wanted, lock),
        ),
        step(
            id=f"{state.name}/release",
            describe=what,
            check=no_release,
            apply=install,
        ),
    ]


def _source(wanted: HostRelease, lock: Lock) -> str:
    where = "the host's index" if wanted.runtime.kind == "index" else "a wheelhouse"
    return f"{len(lock.requirements)} locked packages from {where}"


def _other_runtime(state: HostState, release: Release) -> list[str]:
    """How its Python differs from the current release's."""
    before, after = state.manifest, release.manifest
    if not before:
        return []
    lines = []
    for key, word in (("python", "python"), ("python_version", "Python"), ("venv", "environment")):
        if before.get(key) != after.get(key):
            lines.append(f"{word}: {before.get(key) or 'none'} -> {after.get(key) or 'none'}")
    old, new = before.get("constraints", {}), after["constraints"]
    names = [n for n in sorted({*old, *new}) if old.get(n) != new.get(n)]
    lines += [f"{n}: {old.get(n) or 'none'} -> {new.get(n) or 'none'}" for n in names[:6]]
    return lines + ([f"and {len(names) - 6} more packages"] if len(names) > 6 else [])


def root_step(state: HostState) -> Step:
    def check() -> Sequence[str]:
        return [f"{state.tool.root}: not there"] if state.root == "denied" else ()

    def make() -> None:
        state.tool.make_root()
        state.root = "there"

    return Step(
        f"{state.name}/root",
        state.name,
        f"make {state.tool.root} as root, for the login user",
        check,
        make,
        group=INSTALL,
        wave=INSTALL,
    )


def linger_step(ctx: Context, state: HostState) -> Step:
    """First of all, because it needs somebody else's leave: a release is not sent in vain."""

    def check() -> Sequence[str]:
        return [state.short_lived] if state.short_lived else ()

    def outlive() -> None:
        ctx.units(state.name).outlive()
        state.short_lived = ""

    what = "let units outlive the login (loginctl enable-linger)"
    return Step(f"{state.name}/linger", state.name, what, check, outlive, group=INSTALL, wave=INSTALL)


def _make_venv(ctx: Context, state: HostState, wanted: HostRelease, lock: Lock) -> None:
    wheels: list[Wheel] = []
    if wanted.runtime.kind == "wheelhouse":
        wheels = fetch(state.facts, lock, wanted.wheels, state.name, ctx.say)
    pip = pip_wheel(wanted.wheels)
    sent = state.tool.send([*wheels, *([pip] if pip else [])], state.installed.wheels)
    if sent:
        ctx.say(f"{state.name}: sent {len(sent)} wheels")
    state.tool.make_venv(wanted.runtime, lock, wheels, pip)
    state.installed = replace(
        state.installed,
        venvs=state.installed.venvs | {wanted.runtime.venv},
        wheels=state.installed.wheels | sent,
    )


def current_step(state: HostState, release: str, group: str, wave: str) -> Step:
    def check() -> Sequence[str]:
        current = state.installed.current
        return () if current == release else [f"current: {current or 'none'} -> {release}"]

    def activate() -> None:
        if release not in state.installed.releases:
            raise ConfigError(
                "release_gone",
                f"Release {release} is not on {state.name} any more, so nothing can run from it.",
                "Run `pdctl deploy` with the files that it was made of.",
            )
        state.installed = state.tool.activate(release)

    what = f"make release {release} the current one"
    return Step(f"{state.name}/current", state.name, what, check, activate, group=group, wave=wave)
