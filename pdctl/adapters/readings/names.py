"""Normal names of numbers, whatever a kind of server calls them; rules read these alone."""

from __future__ import annotations

# name -> what it is. Counters end in _total and only grow while their process lives.
NAMES: dict[str, str] = {
    "running": "requests that are being computed",
    "waiting": "requests that wait to be computed",
    "waiting_kv": "requests that wait for KV from a prefill",
    "prompt_tokens_total": "prompt tokens computed",
    "generation_tokens_total": "tokens generated",
    "requests_total": "requests accepted",
    "finished_total": "requests finished well",
    "aborted_total": "requests aborted",
    "prompt_tps": "prompt tokens a second, as the server says",
    "generation_tps": "generated tokens a second, as the server says",
    "kv_usage": "share of KV pages in use, 0 to 1",
    "kv_total_tokens": "KV capacity in tokens",
    "kv_available_tokens": "KV free",
    "kv_evictable_tokens": "KV in the prefix cache that nobody uses",
    "kv_protected_tokens": "KV in the prefix cache that somebody uses",
    "kv_used_tokens": "KV held by requests",
    "queue_bootstrap": "prefill: requests without a handshake from decode",
    "queue_inflight": "prefill: requests computed and not handed over",
    "queue_prealloc": "decode: requests without pages",
    "queue_transfer": "decode: requests whose KV is under way",
    "queue_retracted": "decode: requests put back for lack of pages",
    "bootstrap_failed_total": "prefill: requests whose handshake failed",
    "transfers_failed_total": "transfers that failed",
    "notifications_failed_total": "transfer notifications that failed",
    "kv_expired_total": "prefill: KV released because nobody fetched it in time",
    "retracted_total": "requests put back for lack of pages, ever",
    "preempted_total": "requests preempted for lack of pages, ever",
    "rss_bytes": "memory of the process",
    "router_active": "requests that the router counts on its workers",
    "router_workers_ready": "workers that the router deems fit",
}
