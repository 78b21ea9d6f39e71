export NCCL_SOCKET_IFNAME=eth0
python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --disaggregation-mode decode --disaggregation-transfer-backend nixl --disaggregation-ib-device mlx5_0,mlx5_1 --tp-size 4 --host 10.20.0.12 --port 30001
