"""The interpreter computes small floats as torch does, and the sanitizer sees what it must."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.interp.sanitizer import Sanitizer


@triton.jit
def _arithmetic(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i), tl.load(b + i)
    tl.store(out + i, tl.maximum(x * y + x, -y) - tl.where(x < y, x, y))


@triton.jit
def _dot(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i[:, None] * N + i[None, :]), tl.load(b + i[:, None] * N + i[None, :])
    tl.store(out + i[:, None] * N + i[None, :], tl.dot(x, y).to(out.dtype.element_ty))


@triton.jit
def _shift(a, out, by, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.load(a + i + by))


@triton.jit
def _same(out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.program_id(0))


def test_bfloat16_is_rounded_as_torch_rounds() -> None:
    a, b = torch.randn(2, 64).bfloat16()
    out = torch.empty(64, dtype=torch.bfloat16)
    _arithmetic[(1,)](a, b, out, N=64)
    assert torch.equal(out, torch.maximum(a * b + a, -b) - torch.where(a < b, a, b))


def test_products_are_summed_in_float32() -> None:
    a, b = torch.randn(2, 32, 32).bfloat16()
    out = torch.empty(32, 32, dtype=torch.bfloat16)
    _dot[(1,)](a, b, out, N=32)
    assert torch.allclose(out.float(), a.float() @ b.float(), rtol=2**-8, atol=1e-6)


def test_a_lane_outside_is_named() -> None:
    a, out = torch.zeros(64), torch.zeros(64)
    _shift[(4,)](a, out, 0, N=16)
    with pytest.raises(Exception, match=r"_shift, program 3: load 64 elements from the start of a"):
        _shift[(4,)](a, out, 1, N=16)
    with pytest.raises(Exception, match=r"load -1 elements from the start of a"):
        _shift[(4,)](a, out, -1, N=16)


def test_a_lane_outside_the_view_is_outside() -> None:
    a = torch.zeros(96)
    with pytest.raises(Exception, match="load 64 elements"):
        _shift[(4,)](a[:64], torch.zeros(64), 1, N=16)


def test_a_load_of_what_nobody_wrote_is_named(sanitizer: Sanitizer) -> None:
    a, b, c = torch.zeros(3, 64).unbind()
    a, b = a.clone(), b.clone()
    sanitizer.fresh(b)
    with pytest.raises(Exception, match="load of element 0, which nobody wrote, of a"):
        _shift[(4,)](b, c.clone(), 0, N=16)
    _shift[(4,)](a, b, 0, N=16)
    _shift[(4,)](b, c.clone(), 0, N=16)


def test_two_programs_on_one_byte_are_a_race() -> None:
    with pytest.raises(Exception, match="race: store to what another program of the launch writes, of out"):
        _same[(2,)](torch.zeros(16, dtype=torch.int32), N=16)
    whole = torch.zeros(80)
    with pytest.raises(Exception, match="race"):
        _shift[(4,)](whole, whole, 16, N=16)
