python -m sglang.launch_server --model-path Qwen/Qwen3-32B --disaggregation-mode decode --tp 1 --disaggregation-transfer-backend mooncake
