python3 -m sglang.launch_server --model-path /models/m --disaggregation-mode prefill --disaggregation-ib-device '{"0":"mlx5_0,mlx5_1","1":"mlx5_0,mlx5_1","2":"mlx5_2,mlx5_3"}'
