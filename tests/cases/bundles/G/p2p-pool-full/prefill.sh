vllm serve /models/qwen2.5-vl --port 8100 --kv-transfer-config '{"kv_connector":"P2pNcclConnector","kv_role":"kv_producer","kv_buffer_size":"2e9","kv_port":"21001"}'
