"""The rows of the fault matrix. A cell names its row; docs/faults.md lists these and no other."""

from __future__ import annotations

ROWS: dict[int, str] = {
    1: "A rank is killed",
    2: "An engine's parent process is killed",
    3: "A rank or an engine is stopped for a while and continues",
    4: "Graceful stop under load",
    5: "Decode alone is restarted",
    6: "Prefill alone is restarted",
    7: "Both sides die; either returns first",
    8: "A peer returns at the same address as another life",
    9: "A request is aborted, at each stage",
    10: "Decode never pulls",
    11: "A transfer is stuck on a live peer",
    12: "A transfer ends in an error",
    13: "A completion or a failure notice is lost",
    14: "A deadline passes while the transfer is under way",
    15: "A stale reference is replayed after reuse",
    16: "The two sides do not match",
    17: "Unequal tensor parallelism, with rows 1, 9 and 12",
    18: "The network: partition, one way, resets, the control connection alone",
    19: "The router is killed",
    20: "What a relaunch needs is held by somebody else",
    21: "A prompt is too long, then normal load",
    22: "Rolling change of prefill, then decode",
    23: "Engines idle while the router counts stuck requests",
    24: "Long idle, and days of uptime",
    25: "Whoever supervises is killed",
}

# What a row means that the machine of a run cannot show. The page prints it; nothing is faked.
NOT_SHOWN: dict[int, str] = {
    20: "GPU memory pressure, XID errors and a dead peer's mapped GPU memory need a GPU: not observable on "
    "a CPU host. Shown here: a foreign holder of a port.",
    24: "`make soak` runs for hours with random faults and checks memory, open files and threads.",
}
