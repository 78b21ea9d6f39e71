"""Collect, then judge; a saved bundle is judged by the same path."""

from __future__ import annotations

import getpass
import time
from pathlib import Path

from pdctl.bundle.documents import Documents, load, save
from pdctl.bundle.pseudonyms import Private, pseudonymous
from pdctl.bundle.read import facts_of
from pdctl.diagnose.report import Report, make
from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet
from pdctl.flows.collect.run import GAP, USUAL, Wanted, collect
from pdctl.flows.context import Context


def diagnose(ctx: Context, gap: float = GAP, wanted: Wanted = USUAL) -> Report:
    """Collect and judge. ConfigError only for a fleet file that cannot be read."""
    return diagnose_kept(ctx, gap, wanted)[0]


def diagnose_kept(ctx: Context, gap: float = GAP, wanted: Wanted = USUAL) -> tuple[Report, Documents]:
    """As `diagnose`, with the documents that the verdict was reached from."""
    started = time.monotonic()
    documents = collect(ctx, gap, wanted)
    return make(facts_of(documents, time.time()), time.monotonic() - started), documents


def judge_bundle(path: Path) -> Report:
    """The verdict over a bundle. ConfigError when it cannot be read."""
    started = time.monotonic()
    facts = facts_of(load(path), time.time())
    return make(facts, time.monotonic() - started)


def bundle_file(name: str) -> Path:
    """Where a bundle is written; ConfigError before anything is collected for a place that cannot be."""
    path = Path(name).expanduser()
    if path.is_dir():
        raise ConfigError("bad_bundle_file", f"{path} is a folder.", f"Name a file: {path / 'bundle.tar.gz'}")
    if not path.parent.is_dir():
        raise ConfigError("bad_bundle_file", f"There is no folder {path.parent}.")
    if not path.name.endswith((".tar.gz", ".tgz")):
        path = path.with_name(path.name + ".tar.gz")
    return path


def _login() -> str:
    """Who runs pdctl; "" for a number without a name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _private(fleet: Fleet) -> Private:
    """What the fleet file and this machine's login call things."""
    specs = [host.spec for host in fleet.hosts.values()]
    wheels = [str(Path(s.wheels).expanduser()) for s in specs if s.wheels]
    units = [unit.spec.cwd for unit in fleet.units() if unit.spec.cwd]
    return Private(
        users=(_login(), *(s.user for s in specs if s.user)),
        dialled=tuple(s.ssh for s in specs if s.ssh),
        models=(fleet.model.path, fleet.model.name),
        folders=(
            str(fleet.path.parent),
            str(Path.home()),
            *(host.root for host in fleet.hosts.values()),
            *wheels,
            *units,
        ),
    )


def keep(ctx: Context, documents: Documents, path: Path, pseudonyms: bool, at: float) -> int:
    """Write the bundle; its size in bytes. ConfigError when it cannot be written."""
    if pseudonyms:
        documents = pseudonymous(documents, _private(ctx.fleet))
    try:
        return save(documents.texts, path, at)
    except OSError as error:
        raise ConfigError("bad_bundle_file", f"{path} cannot be written: {error.strerror}.") from None
