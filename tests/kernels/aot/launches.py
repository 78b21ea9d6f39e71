"""What the engine would launch for models of real shapes: recorded from the host functions on meta tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from kernels.launch import Launch, recording, target
from kernels.ops.paged_decode_attention import kernel as decode
from kernels.ops.rms_norm import kernel as norm
from kernels.ops.rope import kernel as rope
from kernels.ops.splits import SplitPlan, SplitWorkspace

ARCHES = (90, 120)
BF16, FP32 = torch.bfloat16, torch.float32


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


VARIANTS = (
    Variant("paged_decode_attention", "32/8 x 128", lambda: _decode(32, 8, 128, sinks=True)),
    Variant("paged_decode_attention", "9/3 x 64", lambda: _decode(9, 3, 64)),
    Variant("paged_decode_attention", "16/2 x 256", lambda: _decode(16, 2, 256)),
    Variant("paged_decode_attention", "9/3 x 64 fp32", lambda: _decode(9, 3, 64, FP32)),
    Variant("rms_norm", "4096", lambda: norm.rms_norm(empty(64, 4096), empty(4096), 1e-5)),
    Variant("rms_norm", "16384", lambda: norm.rms_norm(empty(64, 16384), empty(16384), 1e-5)),
    Variant("rope", "32 x 128", lambda: rope.rope(empty(64, 32, 128), empty(64, 1, 128), empty(64, 1, 128))),
    Variant(
        "rope",
        "64 x 64 interleaved",
        lambda: rope.rope_inverse(empty(64, 64, 64), empty(64, 1, 64), empty(64, 1, 64), True),
    ),
)


def launches(variant: Variant, arch: int) -> Iterator[tuple[str, Launch]]:
    """Kernel name and launch, as on that architecture."""
    with recording() as made, target(arch):
        variant.call()
    for launch in made:
        yield launch.fn.__name__.removeprefix("_"), launch
