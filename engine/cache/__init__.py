"""Who owns which KV page: pure Python over page numbers, no tensors."""
