"""Host tool: the newest end of units' logs, over rotated files or from the journal."""

from __future__ import annotations

import base64
import os
import subprocess
import time
import zlib
from typing import Any

from pdctl.facts.probes.proc import denied

JOURNAL_DEADLINE = 3.0
ROTATIONS = 9


def probe_logs(units: dict[str, dict[str, str]], since: float, limit: int) -> dict[str, Any]:
    """Unit -> {text (deflated, base64), source, bytes, cut}, or {"missing": why}.

    A unit is {file, service, scope}: the log's path, and where that does not exist the systemd unit and its
    manager (system or user). At most `limit` bytes, and nothing of what was last written before `since`.
    """
    return {name: _log_packed(*_log_tail(where, since, limit), limit) for name, where in units.items()}


def _log_tail(where: dict[str, str], since: float, limit: int) -> tuple[Any, str]:
    """(bytes, up to one more than `limit`, source), or (why there is none, source)."""
    if where["file"] and os.path.exists(where["file"]):
        return _log_files(where["file"], since, limit), where["file"]
    if where["service"]:
        return _log_journal(where["service"], where["scope"], since, limit), f"journal of {where['service']}"
    return f"there is no {where['file']}", where["file"]


def _log_files(path: str, since: float, limit: int) -> Any:
    """The log and its older files (path.1 is the youngest of them), as far back as is wanted."""
    found = b""
    for file in [path, *(f"{path}.{n}" for n in range(1, ROTATIONS))]:
        try:
            if file != path and os.stat(file).st_mtime < since:
                break
            with open(file, "rb") as log:
                size = os.fstat(log.fileno()).st_size
                log.seek(max(0, size - (limit + 1 - len(found))))
                found = log.read() + found
        except FileNotFoundError:
            break
        except PermissionError:
            denied.append(file)
            return f"{file} may not be read"
        if len(found) > limit:
            break
    return found


def _log_journal(service: str, scope: str, since: float, limit: int) -> Any:
    manager = ["--user"] if scope == "user" else []
    argv = ["journalctl", *manager, "-q", "--no-pager", "-o", "cat", "-u", service, f"--since=@{since:.0f}"]
    try:
        child = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=JOURNAL_DEADLINE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the journal did not answer in {JOURNAL_DEADLINE:g} s"
    except OSError as error:
        return f"journalctl: {error.strerror}"
    if not child.stdout and os.geteuid() != 0 and scope != "user":
        denied.append("journal")
    if child.returncode != 0 and not child.stdout:
        said = child.stderr.decode("utf-8", "replace").split()
        return "journalctl: " + (" ".join(said)[:200] or f"exit code {child.returncode}")
    return child.stdout[-(limit + 1) :]


def _log_packed(found: Any, source: str, limit: int) -> dict[str, Any]:
    if isinstance(found, str):
        return {"missing": found, "source": source}
    cut = len(found) > limit
    # A cut log begins with a whole line.
    kept = found[-limit:].partition(b"\n")[2] if cut else found
    packed = base64.b64encode(zlib.compress(kept, 1)).decode()
    return {"text": packed, "source": source, "bytes": len(kept), "cut": cut}


def probe_zone() -> int:
    """Seconds that local time is ahead of UTC: logs without a zone are written in it."""
    return time.localtime().tm_gmtoff
