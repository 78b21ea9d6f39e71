"""Which metric of which kind of server is which normal number: metric -> (name, how labels join).

`how` is sum, max or min over the label sets of one scrape. Rank labels (tp_rank, pp_rank, dp_rank, engine)
also give each rank its own reading.
"""

from __future__ import annotations

SGLANG: dict[str, tuple[str, str]] = {
    "sglang:num_running_reqs": ("running", "sum"),
    "sglang:num_queue_reqs": ("waiting", "sum"),
    "sglang:num_prefill_bootstrap_queue_reqs": ("queue_bootstrap", "sum"),
    "sglang:num_prefill_inflight_queue_reqs": ("queue_inflight", "sum"),
    "sglang:num_decode_prealloc_queue_reqs": ("queue_prealloc", "sum"),
    "sglang:num_decode_transfer_queue_reqs": ("queue_transfer", "sum"),
    "sglang:num_retracted_reqs": ("queue_retracted", "sum"),
    "sglang:token_usage": ("kv_usage", "max"),
    "sglang:max_total_num_tokens": ("kv_total_tokens", "sum"),
    "sglang:kv_available_tokens": ("kv_available_tokens", "sum"),
    "sglang:kv_evictable_tokens": ("kv_evictable_tokens", "sum"),
    "sglang:kv_used_tokens": ("kv_used_tokens", "sum"),
    "sglang:gen_throughput": ("generation_tps", "sum"),
    "sglang:prompt_tokens_total": ("prompt_tokens_total", "sum"),
    "sglang:generation_tokens_total": ("generation_tokens_total", "sum"),
    "sglang:num_requests_total": ("requests_total", "sum"),
    "sglang:num_aborted_requests_total": ("aborted_total", "sum"),
    "sglang:num_bootstrap_failed_reqs_total": ("bootstrap_failed_total", "sum"),
    "sglang:num_transfer_failed_reqs_total": ("transfers_failed_total", "sum"),
    "sglang:num_retracted_requests_total": ("retracted_total", "sum"),
}
VLLM: dict[str, tuple[str, str]] = {
    "vllm:num_requests_running": ("running", "sum"),
    "vllm:num_requests_waiting": ("waiting", "sum"),
    "vllm:num_requests_kv_fetch_by_stage": ("waiting_kv", "sum"),
    "vllm:kv_cache_usage_perc": ("kv_usage", "max"),
    "vllm:gpu_cache_usage_perc": ("kv_usage", "max"),
    "vllm:prompt_tokens_total": ("prompt_tokens_total", "sum"),
    "vllm:generation_tokens_total": ("generation_tokens_total", "sum"),
    "vllm:request_success_total": ("finished_total", "sum"),
    "vllm:num_preemptions_total": ("preempted_total", "sum"),
    "vllm:nixl_num_failed_transfers_total": ("transfers_failed_total", "sum"),
    "vllm:nixl_num_failed_notifications_total": ("notifications_failed_total", "sum"),
    "vllm:nixl_num_kv_expired_reqs_total": ("kv_expired_total", "sum"),
    "vllm:nixl_num_notifications_after_expiry_total": ("read_after_expiry_total", "sum"),
    "vllm:nixl_xfer_time_seconds_count": ("transfers_total", "sum"),
}
ROUTERS: dict[str, tuple[str, str]] = {
    "smg_worker_requests_active": ("router_active", "sum"),
    "smg_worker_cb_state": ("router_breaker", "max"),
    "sgl_router_cb_state": ("router_breaker", "max"),
    "smg_worker_health": ("router_workers_ready", "sum"),
    "smg_http_requests_total": ("requests_total", "sum"),
    "sgl_router_running_requests": ("router_active", "sum"),
    "sgl_router_worker_inflight_requests": ("router_active", "sum"),
    "sgl_router_requests_total": ("requests_total", "sum"),
    "vllm_router_running_requests": ("router_active", "sum"),
    "dynamo_frontend_inflight_requests": ("router_active", "sum"),
    "dynamo_frontend_requests_total": ("requests_total", "sum"),
}
ANY: dict[str, tuple[str, str]] = {"process_resident_memory_bytes": ("rss_bytes", "sum")}
METRICS: dict[str, tuple[str, str]] = SGLANG | VLLM | ROUTERS | ANY
RANKS: dict[str, str] = {"tp_rank": "TP", "pp_rank": "PP", "dp_rank": "DP", "engine": "DP"}
