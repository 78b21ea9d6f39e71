"""Every operation with a kernel has cases; a test holds this table equal to the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.kernels.cases import decode, indexer, latent, pages, rowwise
from tests.kernels.cases.case import Case

CASES: dict[str, Callable[[], Iterable[Case]]] = {
    "compress": latent.compress_cases,
    "index_k": indexer.index_k_cases,
    "index_logits": indexer.logits_cases,
    "kv_pack": pages.pack_cases,
    "mla_decode": latent.mla_cases,
    "page_checksum": pages.checksum_cases,
    "paged_decode_attention": decode.cases,
    "paged_prefill_attention": pages.prefill_cases,
    "rms_norm": rowwise.norm_cases,
    "rope": rowwise.rope_cases,
    "sample": pages.sample_cases,
    "sparse_decode": latent.sparse_cases,
    "topk": indexer.topk_cases,
}
