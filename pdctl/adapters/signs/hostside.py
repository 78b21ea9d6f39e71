"""Disks, NUMA, threads and slow starts, as engines and tools print them."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign(
        "files.not_allowed",
        "ermission denied",
        r"(?:PermissionError: \[Errno 13\] |mkdir )(?:Permission denied: )?'?(?P<path>/[^':]*)",
    ),
    Sign(
        "files.not_allowed",
        "ead-only file system",
        r"(?i)(?:OSError|error|cannot|failed).*read-only file system(?:: ?'(?P<path>[^']+)')?",
    ),
    Sign("disk.no_space", "No space left on device"),
    Sign("disk.no_space", "Errno 28"),
    Sign("disk.no_space", "Disk quota exceeded"),
    Sign(
        "disk.nearly_full",
        "% full",
        r"(?P<path>/\S+) is over (?P<percent>\d+)% full.*capacity: (?P<capacity>\d+)",
    ),
    Sign("numa.no_tool", "numactl", r"(?i)numactl.*(?:not found|missing|not available|not installed)"),
    Sign(
        "numa.refused",
        "numactl",
        r"(?i)numactl.*(?:not permitted|set_mempolicy|invalid|is out of range)|libnuma: (?:Error|Warning)",
    ),
    Sign("numa.refused", "libnuma: "),
    Sign("numa.refused", "set_mempolicy", r"(?i)not permitted|invalid"),
    Sign(
        "host.slow_agent",
        "agent",
        r"(?i)(?:nixl|agent).*(?:creat|init|start)\w*.*\b(?:took|in) (?P<seconds>\d+(?:\.\d+)?) ?s",
    ),
)
