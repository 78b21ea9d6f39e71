"""Numbers that engines print into their logs every few seconds; pure."""

from __future__ import annotations

import re

from pdctl.adapters.stamps import rank, written
from pdctl.adapters.traces import Reading

# What stands before a number in a statistics line -> (normal name, factor).
_SGLANG: dict[str, tuple[str, float]] = {
    "#running-req: ": ("running", 1),
    "#queue-req: ": ("waiting", 1),
    "#inflight-req: ": ("queue_inflight", 1),
    "#transferring-req: ": ("queue_inflight", 1),
    "#bootstrap-req: ": ("queue_bootstrap", 1),
    "#unbootstrapped-req: ": ("queue_bootstrap", 1),
    "#prealloc-req: ": ("queue_prealloc", 1),
    "#transfer-req: ": ("queue_transfer", 1),
    "#retracted-req: ": ("queue_retracted", 1),
    "token usage: ": ("kv_usage", 1),
    "gen throughput (token/s): ": ("generation_tps", 1),
    "input throughput (token/s): ": ("prompt_tps", 1),
}
_VLLM: dict[str, tuple[str, float]] = {
    "Running: ": ("running", 1),
    "Waiting: ": ("waiting", 1),
    "Avg prompt throughput: ": ("prompt_tps", 1),
    "Avg generation throughput: ": ("generation_tps", 1),
    "KV cache usage: ": ("kv_usage", 0.01),
}
_FORMS = tuple(
    (heads, table, re.compile(rf"(?P<label>{'|'.join(map(re.escape, table))})(?P<value>-?\d+(?:\.\d+)?)"))
    for heads, table in (
        (("Prefill batch", "Decode batch"), _SGLANG),
        (("Avg generation throughput:",), _VLLM),
    )
)
KEPT = 2000  # statistics lines of one log that are kept: the newest
_SEARCHED = 4000  # characters of a line


def from_log(text: str, near: float | None) -> list[Reading]:
    """One reading for each statistics line; a rank's own where the line names one."""
    found: list[Reading] = []
    for line in reversed(text.splitlines()):
        for heads, table, fields in _FORMS:
            if any(head in line for head in heads):
                numbers = _numbers(table, fields, line[:_SEARCHED])
                if numbers:
                    found.append(Reading(written(line, near), "log", numbers, _one(rank(line))))
        if len(found) >= KEPT:
            break
    return found[::-1]


def _numbers(table: dict[str, tuple[str, float]], fields: re.Pattern[str], line: str) -> dict[str, float]:
    """Normal name -> number; the first of two of one label."""
    found: dict[str, float] = {}
    for match in fields.finditer(line):
        name, factor = table[match["label"]]
        found.setdefault(name, float(match["value"]) * factor)
    return found


def _one(rank: str) -> str:
    """The first rank of a group prints for the server as a whole."""
    return "" if not rank or all(word[2:] == "0" for word in rank.split()) else rank
