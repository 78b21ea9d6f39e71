"""Watchdogs and health checks: what noticed that nothing moves, and what it said of itself."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign(
        "watchdog.fired",
        "atchdog timeout",
        r"watchdog_timeout[= ]+(?P<seconds>[\d.]+)(?:.*soft=(?P<soft>True|False))?",
    ),
    Sign("watchdog.fired", "Watchdog timeout (limit", r"limit (?P<limit>[^)]+)"),
    Sign("watchdog.fired", "atchdog time", r"(?i)watchdog time(?:d )?out(?! \(?(?:limit|self))"),
    Sign("watchdog.fired", "Hang detected"),
    Sign("watchdog.fired", "DeepEP", r"(?i)time ?out"),
    Sign("watchdog.fired", "Notify register times out"),
    Sign(
        "watchdog.fired", "RPC", r"RPC call to (?P<call>\w+) timed out|\w+ RPC timed out|RPC to \w+ timed out"
    ),
    Sign("watchdog.fired", "RayChannelTimeoutError"),
    Sign("watchdog.shm_wait", "No available shared memory broadcast block found", r"in (?P<seconds>\d+) ?s"),
    Sign("watchdog.no_stacks", "py-spy", r"py-spy: not found|No such file or directory: 'py-spy'"),
    Sign("watchdog.no_stacks", "Pyspy failed to dump"),
    Sign(
        "watchdog.dummy_batch",
        "execute_dummy_batch",
    ),
    Sign(
        "watchdog.nothing_executed",
        "local_unfinished_reqs",
        r"(?i)unfinished_reqs[=: ]+true.*executed[=: ]+false",
    ),
    Sign("health.failed", "Health check failed", r"last (?P<seconds>\d+)"),
    Sign("health.failed", "eadiness probe failed"),
    Sign("health.failed", "couldn't get a response from detokenizer", r"last (?P<seconds>\d+)"),
    Sign("health.probe", "HEALTH_CHECK"),
    Sign("health.shape", "does not match", r"shape\[0\].*\((?P<rows>\d+)\).*indptr.*\((?P<tokens>\d+)\)"),
    Sign("stats.prefill", "Prefill batch", r"#new-token: (?P<tokens>\d+)"),
)
