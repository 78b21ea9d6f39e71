"""SGLang's lines about rooms, queues and KV pools of prefill and decode servers."""

from __future__ import annotations

from pdctl.adapters.signs.sign import Sign

SIGNS = (
    Sign("sglang.room_failed", "KVTransferError"),
    Sign(
        "sglang.room_failed",
        " failed for request",
        r"(?:Prefill bootstrap|Prefill transfer|Decode transfer|Decode handshake) failed for request"
        r"(?!.*KVTransferError)",
    ),
    Sign("sglang.room_failed", "KVPoll.", r"^(?!.*KVTransferError).*timed out after"),
    Sign("sglang.worker_error", "transfer worker error", r"room[ =:]*(?P<room>\d+)"),
    Sign("sglang.worker_error", "NIXL transport error", r"room[ =:]*(?P<room>\d+)"),
    Sign("sglang.lost_prefill", "Lost connection with prefill instance"),
    Sign("sglang.session_dead", "is not alive", r"session (?P<remote>\S+) is not alive"),
    Sign("sglang.peer_again", "was already registered, ignoring"),
    Sign("sglang.aborted", "AbortReq"),
    Sign("sglang.aborted", "decode-side abort notification"),
    Sign("sglang.retracted", "Decode out of memory happened"),
    Sign("sglang.retracted", "Retract requests"),
    Sign("sglang.pool_leak", "memory leak detected"),
    Sign("sglang.pool_sizes", "available_size"),
    Sign("sglang.last_request", "No space left for only one request"),
    Sign("sglang.offload_missing", "get_cpu_copy"),
    Sign("sglang.offload_missing", "kv_cache_cpu"),
    Sign("sglang.parked", "pending_bootstrap"),
    Sign(
        "sglang.prealloc_state",
        "waiting_for_input",
        r"waiting_for_input\W+False|KVPoll\.Success|status\W+4\b",
    ),
    Sign("sglang.ranks_differ", "op.preamble.length"),
    Sign("sglang.batch_ordinal", "batch", r"batch (?:ordinal|#|no\.?|id)[ =:]*(?P<n>\d+)"),
)
