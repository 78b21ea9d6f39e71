vllm serve /models/nemo-120b-fp8 --tensor-parallel-size 2 --distributed-executor-backend ray
