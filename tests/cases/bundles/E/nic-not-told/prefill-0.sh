export NCCL_SOCKET_IFNAME=eth0
python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --disaggregation-mode prefill --disaggregation-transfer-backend nixl --disaggregation-ib-device mlx5_0,mlx5_1 --disaggregation-bootstrap-port 8998 --tp-size 4 --host 10.20.0.11 --port 30000
