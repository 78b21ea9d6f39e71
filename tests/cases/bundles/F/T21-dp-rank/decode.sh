python3 -m sglang.launch_server --model-path /models/mimo-7b --disaggregation-mode decode --port 30001
