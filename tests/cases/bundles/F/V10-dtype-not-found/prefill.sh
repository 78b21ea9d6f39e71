python3 -m sglang.launch_server --model-path /models/m --disaggregation-mode prefill --disaggregation-transfer-backend nixl
