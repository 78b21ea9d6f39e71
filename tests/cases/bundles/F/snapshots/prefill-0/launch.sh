python -m sglang.launch_server --model-path /hf/models--zai-org--GLM-4.5-Air/snapshots/a24ceef6ce4f3536971efe9b778bdaa1bab18daa \
  --tp-size 4 --disaggregation-mode prefill --disaggregation-transfer-backend mooncake
