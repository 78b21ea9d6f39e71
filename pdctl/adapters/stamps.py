"""When a log line was written, and which rank wrote it, in the forms that engines and hosts use; pure."""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, datetime

# 2026-08-20T10:00:00.123Z, 2026-08-20 10:00:00,123, [2026-08-20 10:00:00 TP0]
_ISO = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
    r"\s?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
# vLLM: INFO 08-20 10:00:00 [core.py:12]
_SHORT = re.compile(r"\b(?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d+))?\b")
# journald and syslog: Aug 20 10:00:00 host
_SYSLOG = re.compile(
    r"^(?P<name>[A-Z][a-z]{2})\s+(?P<day>\d{1,2}) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d+))?"
)
# glog, in Mooncake and NIXL: E0820 10:00:00.123456 4242 file.cpp:12]
_GLOG = re.compile(
    r"(?:^|[\s\]])[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d+))?\s"
)
# dmesg -T: [Wed Aug 20 10:00:00 2026]
_DMESG = re.compile(
    r"^\[\w{3} (?P<name>[A-Z][a-z]{2})\s+(?P<day>\d{1,2}) (?P<time>\d\d:\d\d:\d\d) (?P<year>\d{4})\]"
)
# UCX and NIXL: [1724148000.123456]; also seconds since boot of a kernel log, told apart by their size.
_EPOCH = re.compile(r"(?:^\[\s*|[\])|:] \[(?=\d{10}\.))(?P<seconds>\d+\.\d{3,9})\]")
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: n for n, name in enumerate(_NAMES, 1)}
_RANK = re.compile(r"\b(?P<kind>TP|PP|DP|EP|rank|Rank)[ =_:]?(?P<n>\d+)\b")
_HEAD = 120  # a stamp stands at the start of its line


def _clock(text: str) -> int:
    hours, minutes, seconds = (int(part) for part in text.split(":"))
    return (hours * 60 + minutes) * 60 + seconds


def _part(found: re.Match[str]) -> float:
    digits = found.groupdict().get("part")
    return float(f"0.{digits}") if digits else 0.0


def _zone(text: str | None) -> int:
    if not text or text == "Z":
        return 0
    sign = -1 if text[0] == "-" else 1
    return sign * (int(text[1:3]) * 3600 + int(text[-2:]) * 60)


def _of_year(month: int, day: int, clock: str, part: float, near: float | None) -> float | None:
    """A stamp without a year belongs to the year that brings it nearest to `near`, and not after it."""
    reference = near if near is not None else datetime.now(UTC).timestamp()
    year = datetime.fromtimestamp(reference, UTC).year
    try:
        at = timegm((year, month, day, 0, 0, 0)) + _clock(clock) + part
    except (ValueError, OverflowError):
        return None
    return (
        at if at <= reference + 2 * 86400 else timegm((year - 1, month, day, 0, 0, 0)) + _clock(clock) + part
    )


def written(line: str, near: float | None = None) -> float | None:
    """Unix seconds of the stamp at the start of `line`, None without one. Stamps without a zone are UTC."""
    head = line[:_HEAD]
    try:
        if found := _ISO.search(head):
            day = datetime.fromisoformat(found["date"]).replace(tzinfo=UTC).timestamp()
            return day + _clock(found["time"]) + _part(found) - _zone(found["zone"])
        if found := _SYSLOG.match(head):
            month = _MONTHS.get(found["name"], 0)
            return _of_year(month, int(found["day"]), found["time"], _part(found), near) if month else None
        if found := _DMESG.match(head):
            month = _MONTHS.get(found["name"], 0)
            if not month:
                return None
            midnight = timegm((int(found["year"]), month, int(found["day"]), 0, 0, 0))
            return float(midnight + _clock(found["time"]))
        if found := _GLOG.search(head) or _SHORT.search(head):
            month, day_of = int(found["month"]), int(found["day"])
            return _of_year(month, day_of, found["time"], _part(found), near)
        if found := _EPOCH.search(head):
            seconds = float(found["seconds"])
            return seconds if seconds > 1e9 else None
    except ValueError:
        return None
    return None


def rank(line: str) -> str:
    """ "TP3", "PP0 TP1": the rank named at the start of `line`, kinds in order, "" when there is none.

    A plain "rank 3" says nothing beside a kind.
    """
    named = sorted({f"{m['kind'].upper()}{m['n']}" for m in _RANK.finditer(line[:_HEAD])})
    return " ".join([n for n in named if not n.startswith("RANK")] or named)
