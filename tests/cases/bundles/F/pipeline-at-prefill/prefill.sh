vllm serve m --pipeline-parallel-size 2 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
