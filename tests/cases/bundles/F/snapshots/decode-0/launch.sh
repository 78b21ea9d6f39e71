python -m sglang.launch_server --model-path /data/models--zai-org--GLM-4.5-Air/snapshots/e7fdb9e0a52d2e0aefea94f5867c924a32a78d17 \
  --tp-size 4 --disaggregation-mode decode --disaggregation-transfer-backend mooncake
