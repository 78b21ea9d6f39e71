python -m sglang.launch_server --model-path /models/dsv3 --disaggregation-mode prefill --tp 8 --pp-size 2 --disaggregation-transfer-backend mooncake
