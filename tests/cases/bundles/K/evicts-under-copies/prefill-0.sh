python3 -m sglang.launch_server --model-path /m --disaggregation-mode prefill --enable-hierarchical-cache
