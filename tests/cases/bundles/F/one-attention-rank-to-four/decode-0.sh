python -m sglang.launch_server --model-path Qwen/Qwen3.5-397B --tp 4 --disaggregation-mode decode --disaggregation-transfer-backend nixl
