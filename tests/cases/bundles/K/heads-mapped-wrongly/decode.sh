python -m sglang.launch_server --model-path Qwen/Qwen3.5-0.8B --disaggregation-mode decode --tp 4 --disaggregation-transfer-backend mooncake
