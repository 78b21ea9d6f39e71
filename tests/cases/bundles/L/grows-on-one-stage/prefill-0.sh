python3 -m sglang.launch_server --model-path /models/glm-5.2 --tp 8 --pp-size 2 --nnodes 2 --disaggregation-mode prefill --enable-hierarchical-cache
