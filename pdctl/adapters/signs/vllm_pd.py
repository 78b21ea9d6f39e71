"""vLLM's lines about KV that a prefill keeps for a decode and a decode waits for, over any connector."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign(
        "vllm.kv_expired",
        "Releasing expired KV blocks",
        r"for request (?P<id>\S+?),? which were retrieved by (?P<n>\d+)"
        r"(?:.*?within (?P<seconds>\d+) ?s)?",
    ),
    Sign(
        "vllm.kv_expired",
        "without being sent",
        r"[Rr]equest (?P<id>\S+) timed out after (?P<seconds>\d+) ?s\w* without being sent",
    ),
    Sign("vllm.late_read", "Potentially invalid KV blocks", r"unrecognized request (?P<id>[^\s,]+)"),
    Sign("vllm.waiting_remote", "WAITING_FOR_REMOTE_KVS"),
    Sign("vllm.finish_unknown", "update_from_kv_xfer_finished"),
    Sign("vllm.key_error", "KeyError"),
    Sign(
        "vllm.transfer_failed",
        "NIXL transfer failure",
        r"NIXL transfer failure:? ?(?P<what>\w+)?"
        r"(?:.*?remote_engine_id['\"]?\s*[:=]\s*['\"]?(?P<remote>[^'\",\s})]+))?",
    ),
    Sign("vllm.aborted", "Aborted request"),
    Sign("vllm.aborted", "FINISHED_ABORTED"),
)
