python3 -m sglang.launch_server --model /models/m --disaggregation-mode prefill --disaggregation-ib-device "mlx5_1,mlx5_3"
