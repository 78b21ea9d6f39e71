"""Processes as ps prints them, whatever columns were asked for; pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pdctl.adapters.traces import ProcessRow

_LSTART = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}")
_ELAPSED = re.compile(r"^(?:(?:(?P<d>\d+)-)?(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+)$")


def processes(text: str, at: float) -> list[ProcessRow]:
    """Rows of `ps aux`, `ps -ef` or `ps -eo …` taken at `at`; parent 0 when it was not shown. The header
    says which column is what, and the last column is the command.
    """
    found: list[ProcessRow] = []
    header: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if "PID" in words:
            header = words
        elif header and words:
            row = _row(line, header, at)
            found += [row] if row else []
    return found


def _row(line: str, header: list[str], at: float) -> ProcessRow | None:
    started: float | None = None
    if lstart := _LSTART.search(line):
        started = _moment(lstart[0])
        line = line.replace(lstart[0], "-", 1)
    cells = dict(zip(header, line.split(None, len(header) - 1), strict=False))
    command = next((cells[name] for name in ("COMMAND", "CMD", "ARGS") if name in cells), "")
    if not cells.get("PID", "").isdigit():
        return None
    if started is None and "ELAPSED" in cells:
        started = _since(cells["ELAPSED"], at)
    rss = cells.get("RSS", "")
    parent = cells.get("PPID", "")
    return ProcessRow(
        pid=int(cells["PID"]),
        parent=int(parent) if parent.isdigit() else 0,
        command=command.strip(),
        rss=int(rss) * 1024 if rss.isdigit() else None,
        started_at=started,
    )


def _moment(text: str) -> float | None:
    try:
        when = datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return when.replace(tzinfo=UTC).timestamp()


def _since(elapsed: str, at: float) -> float | None:
    """[[days-]hours:]minutes:seconds, or seconds alone."""
    if elapsed.isdigit():
        return at - int(elapsed)
    found = _ELAPSED.match(elapsed)
    if not found:
        return None
    days, hours, minutes, seconds = (int(found[name] or 0) for name in "dhms")
    return at - (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
