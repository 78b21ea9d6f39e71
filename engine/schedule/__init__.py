"""Which tokens are computed next: continuous batching and chunked prefill, pure Python."""
