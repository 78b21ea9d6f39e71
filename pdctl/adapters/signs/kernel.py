"""What a host's kernel says of memory and processes."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign(
        "kernel.oom_kill",
        "Killed process",
        r"Killed process (?P<pid>\d+),? \((?P<name>[^)]*)\)?(?:.*?anon-rss:(?P<rss>\d+)kB)?",
    ),
    Sign("kernel.oom_kill", "oom_reaper: reaped", r"process (?P<pid>\d+) \((?P<name>[^)]*)\)"),
    Sign("kernel.oom_kill", "oom-kill:constraint", r"task=(?P<name>[^,]*),pid=(?P<pid>\d+)"),
    Sign(
        "kernel.hung_task",
        "blocked for more than",
        r"task (?P<name>\S+?):(?P<pid>\d+) blocked for more than (?P<seconds>\d+)",
    ),
    Sign("kernel.segfault", "segfault at", r"(?P<name>[^\s\[]+)\[(?P<pid>\d+)\].* in (?P<library>[^\[\s]+)"),
)
