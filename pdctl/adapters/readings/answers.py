"""Numbers of foreign servers' JSON answers, by endpoint; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdctl.adapters.traces import Reading

_LOADS = {
    "num_running_reqs": "running",
    "num_waiting_reqs": "waiting",
    "num_used_tokens": "kv_used_tokens",
    "max_total_num_tokens": "kv_total_tokens",
    "token_usage": "kv_usage",
    "gen_throughput": "generation_tps",
}
_QUEUES = {
    "prefill_bootstrap_queue_reqs": "queue_bootstrap",
    "prefill_inflight_queue_reqs": "queue_inflight",
    "decode_prealloc_queue_reqs": "queue_prealloc",
    "decode_transfer_queue_reqs": "queue_transfer",
    "decode_retracted_queue_reqs": "queue_retracted",
}


def from_answer(endpoint: str, document: Mapping[str, Any], at: float) -> list[Reading]:
    """Readings of one answer; empty for an endpoint that has none. `at` is when it was given."""
    if endpoint in ("loads", "v1_loads"):
        return _loads(document, at)
    return []


def _loads(document: Mapping[str, Any], at: float) -> list[Reading]:
    """SGLang's GET /v1/loads: one row a data parallel rank."""
    found = []
    for row in document.get("loads", []):
        queues = row.get("disaggregation") or {}
        numbers = {name: float(row[key]) for key, name in _LOADS.items() if row.get(key) is not None}
        numbers |= {name: float(queues[key]) for key, name in _QUEUES.items() if queues.get(key) is not None}
        dp = row.get("dp_rank")
        found.append(Reading(row.get("timestamp") or at, "json", numbers, f"DP{dp}" if dp else ""))
    return found
