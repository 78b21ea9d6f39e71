export VLLM_NIXL_SIDE_CHANNEL_PORT=5600
vllm serve deepseek-ai/DeepSeek-V3 --port 8100 --data-parallel-size 8 --enable-expert-parallel --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
