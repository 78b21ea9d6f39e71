vllm serve /models/ds-1.5b --port 20005 --kv-transfer-config '{"kv_connector":"P2pNcclConnector","kv_role":"kv_consumer","kv_rank":1,"kv_parallel_size":2,"kv_buffer_size":4000000000,"kv_port":22001}'
