CUDA_VISIBLE_DEVICES=4,5,6,7 python3 -m sglang.launch_server --model /models/QWEN3-32B/Qwen3-32B --trust-remote-code --tp 4 --disaggregation-mode decode --port 30001 --disaggregation-ib-device mlx5_4
