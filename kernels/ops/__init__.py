"""One folder an operation; `reference.py` is the CPU path and the truth that a Triton kernel is held to.

The KV pool is one tensor [pages, kv_heads, layers, 2, page_size, head_dim], contiguous: a page of a rank is
one run of bytes, and in it a KV head with all its layers.
"""
