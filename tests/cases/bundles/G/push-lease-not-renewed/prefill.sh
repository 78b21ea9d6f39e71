vllm serve /models/hy3 --tensor-parallel-size 2 --kv-transfer-config '{"kv_connector":"NixlPushConnector","kv_role":"kv_producer","kv_load_failure_policy":"fail"}'
