"""Single numbers of a host: memory, limits, load, and how far its clock is from true time; pure."""

from __future__ import annotations

import re

from pdctl.adapters.hosttexts.quantities import in_bytes

_MEMORY = re.compile(r"^Mem:\s+(?P<total>\S+)\s+(?P<used>\S+)\s+(?P<rest>.*)$", re.MULTILINE)
_INFO = re.compile(r"^(?P<key>MemTotal|MemAvailable):\s+(?P<kib>\d+) kB", re.MULTILINE)
_LOCKED = re.compile(
    r"^(?:[Mm]ax locked memory\s+(?:\((?P<unit>k?bytes), -l\)\s+)?|memlock:?\s+)(?P<value>unlimited|-1|\d+)"
    r"|^\s*(?P<bare>unlimited|\d+)\s*$",
    re.MULTILINE,
)
_CHRONY = re.compile(r"^System time\s*:\s*(?P<n>[\d.]+) seconds (?P<way>slow|fast)", re.MULTILINE)
_SYNCED = re.compile(r"^\s*(?:System clock synchronized|NTP synchronized): (?P<is>yes|no)", re.MULTILINE)
_LEAP = re.compile(r"^Leap status\s*:\s*(?P<is>.+)$", re.MULTILINE)
_NTPQ = re.compile(
    r"^\*\S+\s+\S+\s+\d+\s+\w\s+\S+\s+\d+\s+\d+\s+[\d.]+\s+(?P<ms>[+-]?[\d.]+)\s", re.MULTILINE
)
_CORES = re.compile(r"^CPU\(s\):\s+(?P<n>\d+)", re.MULTILINE)
_LOAD = re.compile(r"load averages?: (?P<n>\d+[.,]\d+)")


def memory(text: str) -> dict[str, float]:
    """memory_total and memory_free in bytes, of free (-h, -b, -m, -g or KiB) or /proc/meminfo. Free is what
    a program can have ("available").
    """
    info = {m["key"]: float(m["kib"]) * 1024 for m in _INFO.finditer(text)}
    if info:
        names = {"MemTotal": "memory_total", "MemAvailable": "memory_free"}
        return {names[key]: value for key, value in info.items()}
    found = _MEMORY.search(text)
    if not found:
        return {}
    rest = found["rest"].split()
    unit = _unit_of(found["total"])
    numbers = {"memory_total": in_bytes(found["total"], unit), "memory_free": in_bytes(rest[-1], unit)}
    return {name: float(value) for name, value in numbers.items() if value is not None}


def _unit_of(total: str) -> int:
    """free does not say its unit; a host has between a GiB and a few TiB."""
    digits = len(total) if total.isdigit() else 0
    return 1 if digits > 11 else 1024 if digits > 6 else 1 << 20 if digits > 3 else 1 << 30


def locked(text: str, bare: bool = False) -> float | None:
    """Bytes that may be locked, -1 for no limit: of `ulimit -a` or /proc/PID/limits. `bare` takes a number
    alone as `ulimit -l` prints it, in KiB.
    """
    for found in _LOCKED.finditer(text):
        if found["bare"] and not bare:
            continue
        value = found["bare"] or found["value"]
        if value in ("unlimited", "-1"):
            return -1.0
        return float(value) * (1024 if found["bare"] or found["unit"] == "kbytes" else 1)
    return None


def clock(text: str) -> dict[str, float]:
    """clock_offset: this host's clock minus true time, seconds. clock_synced: 1 or 0."""
    numbers: dict[str, float] = {}
    if chrony := _CHRONY.search(text):
        numbers["clock_offset"] = float(chrony["n"]) * (-1 if chrony["way"] == "slow" else 1)
    elif ntpq := _NTPQ.search(text):
        numbers["clock_offset"] = -float(ntpq["ms"]) / 1000
    if leap := _LEAP.search(text):
        numbers["clock_synced"] = float(leap["is"].strip() != "Not synchronised")
    elif synced := _SYNCED.search(text):
        numbers["clock_synced"] = float(synced["is"] == "yes")
    return numbers


def processors(text: str) -> dict[str, float]:
    """cores, load1."""
    numbers: dict[str, float] = {}
    if cores := _CORES.search(text):
        numbers["cores"] = float(cores["n"])
    if load := _LOAD.search(text):
        numbers["load1"] = float(load["n"].replace(",", "."))
    return numbers
