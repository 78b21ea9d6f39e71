python -m sglang.launch_server --model-path Qwen/Qwen3.5-397B --tp 4 --dp 4 --enable-dp-attention --disaggregation-mode prefill --disaggregation-transfer-backend nixl
