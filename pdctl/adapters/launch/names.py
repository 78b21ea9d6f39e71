"""Launch flags of engines under normal names: what means the same has one name."""

from __future__ import annotations

# flag without dashes, underscores for dashes -> normal name; every other flag keeps its own.
ALIASES: dict[str, str] = {
    "tp_size": "tp",
    "tensor_parallel_size": "tp",
    "pp_size": "pp",
    "pipeline_parallel_size": "pp",
    "dp_size": "dp",
    "data_parallel_size": "dp",
    "block_size": "page_size",
    "kv_cache_dtype": "kv_dtype",
    "model_path": "model",
    "max_running_requests": "max_running",
    "max_num_seqs": "max_running",
    "mem_fraction_static": "memory_share",
    "gpu_memory_utilization": "memory_share",
    "disaggregation_mode": "role",
    "disaggregation_transfer_backend": "transfer_backend",
    "disaggregation_bootstrap_port": "bootstrap_port",
    "context_length": "max_context",
    "max_model_len": "max_context",
    "speculative_algorithm": "speculative",
    "speculative_config": "speculative",
}


def normal(flag: str) -> str:
    """--kv-cache-dtype -> kv_dtype."""
    plain = flag.lstrip("-").replace("-", "_")
    return ALIASES.get(plain, plain)
