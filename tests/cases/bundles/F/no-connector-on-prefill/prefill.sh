python -m dynamo.vllm --model Qwen/Qwen3-0.6B --disaggregation-mode prefill
