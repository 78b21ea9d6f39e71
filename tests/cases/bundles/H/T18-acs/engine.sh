vllm serve /models/m --tensor-parallel-size 2
