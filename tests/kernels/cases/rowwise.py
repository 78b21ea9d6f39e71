"""rms_norm, rope and its inverse: rows that do not fill a block, rows that are not contiguous."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels.ops.rms_norm.reference import rms_norm
from kernels.ops.rope import inverse_frequencies, reference, rope_table
from tests.kernels.cases.case import Case, Stage, near, normal


def norm_cases() -> Iterator[Case]:
    for shape, dtype in (
        ((3, 48), torch.float32),
        ((2, 3, 64), torch.bfloat16),
        ((5, 1), torch.float32),
        ((0, 16), torch.float32),
    ):

        def play(stage: Stage, shape: tuple[int, ...] = shape, dtype: torch.dtype = dtype) -> None:
            x, w = normal(*shape, dtype=dtype), normal(shape[-1], dtype=dtype, seed=1)
            found = stage.kernel.rms_norm(*stage.put(x, w), 1e-5)
            near(found, rms_norm(x.double(), w.double(), 1e-5).to(dtype))

        yield Case(f"{list(shape)} {dtype}", play)

    def strided(stage: Stage) -> None:
        x, w = normal(4, 3, 80), normal(32, seed=1)
        part = stage.put(x)[0][:, 1, 16:48]
        near(stage.kernel.rms_norm(part, w.to(stage.device), 1e-6), rms_norm(x[:, 1, 16:48], w, 1e-6))

    yield Case("a slice of wider rows", strided)


def rope_cases() -> Iterator[Case]:
    for heads, dim, dtype, interleaved in (
        (3, 16, torch.float32, False),
        (11, 24, torch.float32, True),
        (2, 64, torch.bfloat16, False),
    ):

        def play(
            stage: Stage,
            heads: int = heads,
            dim: int = dim,
            dtype: torch.dtype = dtype,
            pairs: bool = interleaved,
        ) -> None:
            x = normal(5, heads + 2, dim, dtype=dtype)[:, 1:-1]
            positions = torch.tensor([0, 1, 900, 77, 3])
            cos, sin = (t[positions] for t in rope_table(inverse_frequencies(dim, 1e4), 1000, dtype, pairs))
            turned = stage.kernel.rope(*stage.put(x, cos, sin), pairs)
            near(turned, reference.rope(x.double(), cos.double(), sin.double(), pairs).to(dtype))
            back = stage.kernel.rope_inverse(turned, *stage.put(cos, sin), pairs)
            near(back, x, ulps=6)

        yield Case(f"{heads} x {dim} {dtype}{' interleaved' if interleaved else ''}", play)
