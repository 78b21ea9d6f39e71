vllm serve nm-testing/Llama-3.3-70B-Instruct-FP8-dynamic --tensor-parallel-size 4 --distributed-executor-backend mp
