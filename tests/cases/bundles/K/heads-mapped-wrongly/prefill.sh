python -m sglang.launch_server --model-path Qwen/Qwen3.5-0.8B --disaggregation-mode prefill --tp 1 --disaggregation-transfer-backend mooncake
