"""Bundles kept before the supervisor acts: what it judged by, so that a person can judge it again."""

from __future__ import annotations

import time
from pathlib import Path

from pdctl.bundle.documents import Documents, save
from pdctl.errors import ConfigError
from pdctl.fleet.model import Fleet

_ENDING = ".tar.gz"


def folder(fleet: Fleet) -> Path:
    return fleet.paths.evidence / "incidents"


def keep(fleet: Fleet, documents: Documents, incident: int, most: int, megabytes: int) -> Path:
    """Write the bundle and forget the oldest beyond `most` or `megabytes`; ConfigError when it cannot be.

    The newest one stays, however large it is.
    """
    place = folder(fleet)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = place / f"incident-{incident}-{stamp}{_ENDING}"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        save(documents.texts, path, time.time())
        _forget(place, path, most, megabytes << 20)
    except OSError as error:
        raise ConfigError("no_evidence", f"{path} cannot be written: {error.strerror}.") from None
    return path


def _forget(place: Path, newest: Path, most: int, size: int) -> None:
    there = sorted(place.glob(f"incident-*{_ENDING}"), key=lambda p: (p != newest, -p.stat().st_mtime))
    total = 0
    for number, path in enumerate(there):
        total += path.stat().st_size
        if path != newest and (number >= most or total > size):
            path.unlink(missing_ok=True)
