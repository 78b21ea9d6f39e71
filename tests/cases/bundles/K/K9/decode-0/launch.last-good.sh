python -m sglang.launch_server --model-path /models/m --tp-size 8 --disaggregation-mode decode --attention-backend aiter
