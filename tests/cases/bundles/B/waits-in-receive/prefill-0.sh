vllm serve /models/ds-1.5b --port 20003 --kv-transfer-config '{"kv_connector":"P2pNcclConnector","kv_role":"kv_producer","kv_rank":0,"kv_parallel_size":2,"kv_buffer_size":1000000000,"kv_port":21001}'
