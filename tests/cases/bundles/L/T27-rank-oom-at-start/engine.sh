python -m sglang.launch_server --model-path Qwen/Qwen3-32B-FP8 --enable-hierarchical-cache --mem-fraction-static 0.1 --tp 8 --hicache-size 15
