python -m sglang.launch_server --model-path Qwen/Qwen3-32B --disaggregation-mode prefill --tp 2 --disaggregation-transfer-backend mooncake
