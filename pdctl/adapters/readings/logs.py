"""Numbers that engines print into their logs every few seconds; pure."""

from __future__ import annotations

import re

from pdctl.adapters.stamps import rank, written
from pdctl.adapters.traces import Reading

_NUMBER = r"(?P<v>-?\d+(?:\.\d+)?)"
# What stands before a number in a statistics line -> (normal name, factor).
_SGLANG: dict[str, tuple[str, float]] = {
    r"#running-req: ": ("running", 1),
    r"#queue-req: ": ("waiting", 1),
    r"#inflight-req: ": ("queue_inflight", 1),
    r"#transferring-req: ": ("queue_inflight", 1),
    r"#bootstrap-req: ": ("queue_bootstrap", 1),
    r"#unbootstrapped-req: ": ("queue_bootstrap", 1),
    r"#prealloc-req: ": ("queue_prealloc", 1),
    r"#transfer-req: ": ("queue_transfer", 1),
    r"#retracted-req: ": ("queue_retracted", 1),
    r"token usage: ": ("kv_usage", 1),
    r"gen throughput \(token/s\): ": ("generation_tps", 1),
    r"input throughput \(token/s\): ": ("prompt_tps", 1),
}
_VLLM: dict[str, tuple[str, float]] = {
    r"Running: ": ("running", 1),
    r"Waiting: ": ("waiting", 1),
    r"Avg prompt throughput: ": ("prompt_tps", 1),
    r"Avg generation throughput: ": ("generation_tps", 1),
    r"KV cache usage: ": ("kv_usage", 0.01),
}
_FORMS = (
    (re.compile(r"Prefill batch|Decode batch"), _SGLANG),
    (re.compile(r"Avg generation throughput:"), _VLLM),
)
_FIELDS = {
    id(table): [(re.compile(label + _NUMBER), name, factor) for label, (name, factor) in table.items()]
    for _, table in _FORMS
}
KEPT = 2000  # statistics lines of one log that are kept: the newest


def from_log(text: str, near: float | None) -> list[Reading]:
    """One reading for each statistics line; a rank's own where the line names one."""
    found: list[Reading] = []
    for line in text.splitlines():
        for form, table in _FORMS:
            if not form.search(line):
                continue
            numbers = {
                n: float(m["v"]) * f for regex, n, f in _FIELDS[id(table)] if (m := regex.search(line))
            }
            if numbers:
                found.append(Reading(written(line, near), "log", numbers, _one(rank(line))))
    return found[-KEPT:]


def _one(rank: str) -> str:
    """The first rank of a group prints for the server as a whole."""
    return "" if not rank or all(word[2:] == "0" for word in rank.split()) else rank
