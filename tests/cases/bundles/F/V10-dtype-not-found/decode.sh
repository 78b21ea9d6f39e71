python3 -m sglang.launch_server --model-path /models/m --disaggregation-mode decode --disaggregation-transfer-backend nixl --kv-cache-dtype fp8_e4m3
