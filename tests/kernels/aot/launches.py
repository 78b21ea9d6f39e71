"""What the engine would launch for real models: recorded from the host functions on meta tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from kernels.launch import Launch, recording, target
from kernels.ops.compress import kernel as compress
from kernels.ops.index_k import kernel as index_k
from kernels.ops.index_logits import kernel as logits
from kernels.ops.kv_pack import kernel as pack
from kernels.ops.mla_decode import kernel as mla
from kernels.ops.page_checksum import kernel as checksum
from kernels.ops.paged_decode_attention import kernel as decode
from kernels.ops.paged_prefill_attention import kernel as prefill
from kernels.ops.rms_norm import kernel as norm
from kernels.ops.rope import kernel as rope
from kernels.ops.sample import kernel as sample
from kernels.ops.sparse_decode import kernel as sparse
from kernels.ops.splits import SplitPlan, SplitWorkspace
from kernels.ops.topk import kernel as topk

ARCHES = (90, 120)
BF16, FP32, I32 = torch.bfloat16, torch.float32, torch.int32


def empty(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@dataclass(frozen=True)
class Variant:
    """One set of shapes: `call` makes the operation's launches."""

    op: str
    name: str
    call: Callable[[], object]


def _decode(heads: int, kv_heads: int, dim: int, dtype: torch.dtype = BF16, sinks: bool = False) -> None:
    split = SplitPlan.of(max_batch=64, heads=heads, kv_heads=kv_heads, dim=dim, max_tokens=1 << 17)
    pool = empty(1024, kv_heads, 32, 2, 16, dim, dtype=dtype)
    plan = decode.plan_decode(pool, [[0, 1]] * 64, [20] * 64, SplitWorkspace(split, "meta"))
    on = empty(heads, dtype=FP32) if sinks else None
    decode.paged_decode_attention(empty(64, heads, dim, dtype=dtype), pool, 3, plan, 0.1, on)


def _prefill(heads: int, kv_heads: int, dim: int, dtype: torch.dtype = BF16) -> None:
    pool = empty(1024, kv_heads, 32, 2, 16, dim, dtype=dtype)
    plan = prefill.plan_prefill(pool, list(range(64)), 512, 512, dtype)
    prefill.paged_prefill_attention(empty(512, heads, dim, dtype=dtype), pool, 3, plan, 0.1)


def _work(heads: int, values: int, tokens: int) -> SplitWorkspace:
    tiles = max(1, heads // 16)
    split = SplitPlan.of(max_batch=16, heads=heads, kv_heads=tiles, dim=values, max_tokens=tokens)
    return SplitWorkspace(split, "meta")


def _mla(heads: int) -> None:
    cache, lengths = empty(512, 61, 64, 576)[:, 3], empty(16, dtype=I32)
    table = empty(16, 2048, dtype=I32)
    mla.mla_decode(empty(16, heads, 576), cache, table, lengths, 512, 0.1, _work(heads, 512, 1 << 17))


def _sparse(heads: int, dim: int, window: int, chosen: int) -> None:
    slots = (empty(16, window, dtype=torch.int64), empty(16, chosen, dtype=torch.int64))
    work = _work(heads, 512, window + chosen)
    caches = (empty(4096, dim), empty(1 << 16, dim))
    sparse.sparse_decode(empty(16, heads, dim), caches, slots, 512, 0.1, empty(heads, dtype=FP32), work)


def _index(heads: int) -> None:
    table, lengths = empty(16, 512, dtype=I32), empty(16, dtype=I32)
    weights = empty(16, heads, dtype=FP32)
    logits.index_logits(empty(16, heads, 128), weights, empty(4096, 64, 128), table, lengths, 32768)


def _index_k() -> None:
    cache, sums = empty(1 << 16, 128), empty(1 << 16, dtype=I32)
    slots, positions = empty(64, dtype=torch.int64), empty(64, dtype=I32)
    index_k.write_index_k(cache, sums, empty(64, 128), slots, slots, positions)
    index_k.verify_index_k(cache, sums, slots, slots, positions)


def _compress(ratio: int, dim: int, overlap: bool) -> None:
    width = 2 * dim if overlap else dim
    previous = empty(64, dtype=I32) if overlap else None
    one = [empty(64, ratio, width, dtype=FP32) for _ in range(2)]
    compress.compress(*one, empty(ratio, width, dtype=FP32), previous)


def _pages() -> None:
    pool = empty(1024, 8, 32, 2, 16, 128)
    checksum.page_checksum(pool, [1, 2, 3], 0, 0, 40, 4)


def _pack(back: bool) -> None:
    pool, pages = empty(1024, 8, 32, 2, 16, 128), empty(64, dtype=torch.int64)
    if back:
        pack.kv_unpack(pool, pages, (2, 4), empty(64, 2, 32, 2, 16, 128))
    else:
        pack.kv_pack(pool, pages, (2, 4))


VARIANTS = (
    Variant("paged_decode_attention", "32/8 x 128", lambda: _decode(32, 8, 128, sinks=True)),
    Variant("paged_decode_attention", "9/3 x 64", lambda: _decode(9, 3, 64)),
    Variant("paged_decode_attention", "16/2 x 256", lambda: _decode(16, 2, 256)),
    Variant("paged_decode_attention", "9/3 x 64 fp32", lambda: _decode(9, 3, 64, FP32)),
    Variant("paged_prefill_attention", "32/8 x 128", lambda: _prefill(32, 8, 128)),
    Variant("paged_prefill_attention", "9/3 x 64", lambda: _prefill(9, 3, 64)),
    Variant("mla_decode", "128 heads, 512+64", lambda: _mla(128)),
    Variant("mla_decode", "16 heads, 512+64", lambda: _mla(16)),
    Variant("sparse_decode", "64 heads, 512, window 128", lambda: _sparse(64, 512, 128, 512)),
    Variant("sparse_decode", "16 heads, 512+64, 2048 chosen", lambda: _sparse(16, 576, 0, 2048)),
    Variant("index_logits", "64 x 128", lambda: _index(64)),
    Variant("index_k", "128", _index_k),
    Variant("topk", "512", lambda: topk.topk(empty(16, 32768, dtype=FP32), empty(16, dtype=I32), 512)),
    Variant("topk", "2048", lambda: topk.topk(empty(16, 32768, dtype=FP32), empty(16, dtype=I32), 2048)),
    Variant("compress", "128 tokens x 512", lambda: _compress(128, 512, False)),
    Variant("compress", "2 x 4 tokens x 512", lambda: _compress(4, 512, True)),
    Variant("page_checksum", "16 x 128", _pages),
    Variant("kv_pack", "16 x 128", lambda: _pack(False)),
    Variant("kv_pack", "16 x 128 put back", lambda: _pack(True)),
    Variant("rms_norm", "4096", lambda: norm.rms_norm(empty(64, 4096), empty(4096), 1e-5)),
    Variant("rms_norm", "16384", lambda: norm.rms_norm(empty(64, 16384), empty(16384), 1e-5)),
    Variant("rope", "32 x 128", lambda: rope.rope(empty(64, 32, 128), empty(64, 1, 128), empty(64, 1, 128))),
    Variant(
        "rope",
        "64 x 64 interleaved",
        lambda: rope.rope_inverse(empty(64, 64, 64), empty(64, 1, 64), empty(64, 1, 64), True),
    ),
    Variant("sample", "128000", lambda: sample.greedy(empty(64, 128000, dtype=FP32))),
)


def launches(variant: Variant, arch: int) -> Iterator[tuple[str, Launch]]:
    """Kernel name and launch, as on that architecture."""
    with recording() as made, target(arch):
        variant.call()
    for launch in made:
        yield launch.fn.__name__.removeprefix("_"), launch
