export VLLM_ALL2ALL_BACKEND=deepep_low_latency NVSHMEM_IB_ENABLE_IBGDA=true UCX_TLS=rc,cuda_copy
vllm serve deepseek-ai/DeepSeek-R1 --data-parallel-size 16 --enable-expert-parallel --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_connector_extra_config":{"num_threads":8}}'
