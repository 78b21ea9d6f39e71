python -m dynamo.vllm --model /models/nemotron-3-super --tensor-parallel-size 4 --enable-prefix-caching --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
