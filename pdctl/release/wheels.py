"""Wheels for hosts without an index: fetched once into pdctl's cache, or taken from a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pdctl.errors import ConfigError
from pdctl.release.lock import Lock, canonical
from pdctl.release.runtime import Facts
from pdctl.transport.command import Command
from pdctl.transport.local import LocalTransport

FETCH = 1800.0
# Hosts that are alike want the same wheels at the same time.
_ONE_FETCH = threading.Lock()


@dataclass(frozen=True)
class Wheel:
    path: Path
    sha256: str
    size: int

    @property
    def name(self) -> str:
        return self.path.name


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pdctl" / "wheels"


def wheel_of(path: Path) -> Wheel:
    """Digested once: its digest is kept in the cache under what tells a changed file."""
    stat = path.stat()
    key = hashlib.sha256(f"{path.absolute()} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}".encode())
    note = cache_dir() / "digests" / key.hexdigest()
    try:
        known = note.read_text(encoding="ascii")
    except OSError:
        known = ""
    if len(known) != 64:
        with path.open("rb") as file:
            known = hashlib.file_digest(file, "sha256").hexdigest()
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(known, encoding="ascii")
    return Wheel(path, known, stat.st_size)


def given_wheels(folder: Path, lock: Lock, key: str) -> list[Wheel]:
    """The locked ones among a folder's wheels. `key` is the fleet file's that names the folder.

    ConfigError names what it lacks that every machine needs.
    """
    if not folder.is_dir():
        raise ConfigError("no_wheels", f"{key}: there is no folder {folder}.")
    wanted = {(r.name, r.version) for r in lock.requirements}
    found = {p: _project(p) for p in sorted(folder.glob("*.whl"))}
    there = set(found.values())
    missing = [
        f"{r.name} {r.version}"
        for r in lock.requirements
        if not r.marker and (r.name, r.version) not in there
    ]
    if missing:
        raise ConfigError(
            "no_wheels",
            f"{key}: {folder} has no wheel of {', '.join(missing[:5])}"
            + (f" and {len(missing) - 5} more." if len(missing) > 5 else "."),
            "Fill it with `pip download`, or leave the key out and pdctl fetches them itself.",
        )
    return [wheel_of(path) for path, project in found.items() if project in wanted]


def _project(path: Path) -> tuple[str, str]:
    """Name and version of a wheel file; a local version (2.13.0+cpu) satisfies its public one."""
    name, _, rest = path.name.partition("-")
    return canonical(name), rest.partition("-")[0].partition("+")[0]


def fetch(
    facts: Facts, lock: Lock, folder: Path | None, host: str, say: Callable[[str], None]
) -> list[Wheel]:
    """All wheels that `lock` comes to on a machine like `facts`; from `folder` alone where one is given.

    ConfigError with what pip said when that cannot be had.
    """
    if not facts.glibc:
        raise ConfigError("no_wheels", f"{host} has another libc than glibc, for which there are no wheels.")
    digests = [w.sha256 for w in given_wheels(folder, lock, f"hosts.{host}.wheels")] if folder else []
    key = hashlib.sha256("\n".join([lock.text, facts.platform, *sorted(digests)]).encode()).hexdigest()[:16]
    target = cache_dir() / key
    with _ONE_FETCH:
        if not target.is_dir():
            say(f"fetching {len(lock.requirements)} wheels for {facts.platform}")
            _download(facts, lock, folder, target, host)
    return [wheel_of(path) for path in sorted(target.glob("*.whl"))]


def _download(facts: Facts, lock: Lock, folder: Path | None, target: Path, host: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        requirements = temporary / "engine.lock"
        requirements.write_text(lock.text, encoding="utf-8")
        wheels = temporary / "wheels"
        argv = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
        ]
        argv += ["--dest", str(wheels), "--only-binary", ":all:", "-r", str(requirements)]
        argv += ["--implementation", "cp", "--python-version", facts.minor]
        argv += [word for tag in platforms(facts) for word in ("--platform", tag)]
        if folder is not None:
            argv += ["--no-index", "--find-links", str(folder)]
        result = LocalTransport("this machine").run(Command(tuple(argv)), FETCH)
        if result.rc != 0:
            raise ConfigError(
                "no_wheels",
                f"The wheels for {host} ({facts.platform}) cannot be had: "
                + (
                    f"pip did not end in {FETCH:g} s." if result.timed_out else f"pip ended with {result.rc}."
                ),
                f"Give pdctl an index (pip's own configuration counts), or a folder as hosts.{host}.wheels.",
                details=result.tail(12),
            )
        os.rename(wheels, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def platforms(facts: Facts) -> list[str]:
    """Platform tags that a machine can run, newest glibc first."""
    minor = int(facts.glibc.split(".")[1])
    tags = [f"manylinux_2_{n}_{facts.machine}" for n in range(minor, 4, -1)]
    old = [f"{name}_{facts.machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    return tags + old


def pip_wheel(folder: Path | None) -> Wheel | None:
    """A pip to run on a host that has none: of the given folder, else the one this Python brings along."""
    own = Path(sysconfig.get_path("stdlib")) / "ensurepip" / "_bundled"
    # Where a distribution keeps what ensurepip would otherwise bring along.
    system = sysconfig.get_config_var("WHEEL_PKG_DIR")
    for place in (*([folder] if folder else []), own, *([Path(system)] if system else [])):
        found = sorted(place.glob("pip-*-py3-none-any.whl"))
        if found:
            return wheel_of(found[-1])
    return None


__all__ = ["Wheel", "fetch", "given_wheels", "pip_wheel", "platforms", "wheel_of"]
