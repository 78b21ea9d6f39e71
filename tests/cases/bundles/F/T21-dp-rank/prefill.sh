python3 -m sglang.launch_server --model-path /models/mimo-7b --disaggregation-mode prefill --dp-size 2 --port 30000
