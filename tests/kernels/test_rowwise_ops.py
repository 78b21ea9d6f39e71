"""Norm, rope, linear and KV writes against float64 or a plain loop."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.ops.kv_write import kv_rows, kv_write
from kernels.ops.linear import invariant_rows, linear, pack
from kernels.ops.rms_norm import rms_norm
from kernels.ops.rope import inverse_frequencies, llama3_frequencies, rope, rope_inverse, rope_table

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@DTYPES
def test_rms_norm(dtype: torch.dtype) -> None:
    x, w = normal(5, 48, dtype=dtype), normal(48, dtype=dtype, seed=1)
    x64, w64 = x.double(), w.double()
    want = x64 / (x64.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w64
    atol = 1e-5 if dtype == torch.float32 else 4e-2
    assert torch.allclose(rms_norm(x, w, 1e-5).double(), want, atol=atol)


def test_rms_norm_refuses_a_weight_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        rms_norm(normal(2, 8), normal(7), 1e-5)
    with pytest.raises(ValueError, match="does not fit"):
        rms_norm(normal(2, 8), normal(8, dtype=torch.bfloat16), 1e-5)
    with pytest.raises(ValueError, match="does not fit"):
        rms_norm(torch.tensor(1.0), normal(1), 1e-5)


@DTYPES
def test_rope_turns_pairs_of_the_two_halves(dtype: torch.dtype) -> None:
    x = normal(6, 3, 8, dtype=dtype)
    frequencies = inverse_frequencies(8, 10000.0)
    positions = torch.tensor([0, 1, 2, 77, 500, 999])
    cos, sin = (t[positions] for t in rope_table(frequencies, 1000, dtype))
    out = rope(x, cos, sin).double()
    for t, position in enumerate(positions.tolist()):
        for i in range(4):
            angle = position * 10000.0 ** (-2 * i / 8)
            a, b = x[t, :, i].double(), x[t, :, i + 4].double()
            atol = 1e-5 if dtype == torch.float32 else 4e-2
            assert torch.allclose(out[t, :, i], a * math.cos(angle) - b * math.sin(angle), atol=atol)
            assert torch.allclose(out[t, :, i + 4], b * math.cos(angle) + a * math.sin(angle), atol=atol)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_inverse_turns_back(interleaved: bool) -> None:
    x = normal(4, 3, 8, dtype=torch.float64)
    positions = torch.tensor([0, 3, 77, 999])
    table = rope_table(inverse_frequencies(8, 1e4), 1000, torch.float64, interleaved)
    cos, sin = (t[positions] for t in table)
    turned = rope(x, cos, sin, interleaved)
    assert not torch.allclose(turned[1:], x[1:])
    assert torch.allclose(rope_inverse(turned, cos, sin, interleaved), x, atol=1e-12)


def test_rope_of_neighbours_is_that_of_halves_in_another_order() -> None:
    x, frequencies = normal(5, 2, 8), inverse_frequencies(8, 1e4)
    halves = rope(x, *rope_table(frequencies, 5, torch.float32))
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    pairs = rope(x[..., order], *rope_table(frequencies, 5, torch.float32, True), True)
    assert torch.allclose(pairs, halves[..., order], atol=1e-6)


def test_rope_keeps_the_dtype_of_what_it_turns() -> None:
    cos, sin = rope_table(inverse_frequencies(8, 1e4), 3, torch.float32)
    for turn in (rope, rope_inverse):
        assert turn(normal(3, 2, 8, dtype=torch.bfloat16), cos, sin).dtype == torch.bfloat16


def test_llama3_scaling_keeps_fast_and_divides_slow_frequencies() -> None:
    plain = inverse_frequencies(64, 500000.0)
    scaled = llama3_frequencies(plain, 8.0, 1.0, 4.0, 8192)
    turns = 8192 * plain / (2 * math.pi)
    assert torch.equal(scaled[turns > 4], plain[turns > 4])
    assert torch.allclose(scaled[turns < 1], plain[turns < 1] / 8)
    between = (turns > 1) & (turns < 4)
    assert between.any() and (scaled[between] < plain[between]).all()
    assert (scaled[between] > plain[between] / 8).all()


def test_rope_refuses_what_does_not_fit() -> None:
    cos, sin = rope_table(inverse_frequencies(8, 1e4), 4, torch.float32)
    with pytest.raises(ValueError, match="do not fit"):
        rope(normal(3, 2, 8), cos, sin)
    with pytest.raises(ValueError, match="even"):
        inverse_frequencies(7, 1e4)


@DTYPES
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 33])
def test_linear(dtype: torch.dtype, bias: bool, rows: int) -> None:
    w, x = normal(40, 24, dtype=dtype), normal(rows, 24, dtype=dtype, seed=1)
    b = normal(40, dtype=dtype, seed=2) if bias else None
    want = x.double() @ w.double().T + (b.double() if b is not None else 0)
    atol = 1e-5 if dtype == torch.float32 else 8e-2
    assert torch.allclose(linear(x, pack(w, b)).double(), want, atol=atol)


def test_linear_rows_are_exact_from_the_promised_count() -> None:
    w = pack(normal(192, 576))
    x = normal(64, 576, seed=1)
    assert 1 <= w.rows <= 8 and w.rows == invariant_rows(192, 576, torch.float32, w.packed)
    whole = linear(x, w)
    for rows in range(w.rows, 65, 3):
        assert torch.allclose(linear(x[:rows], w), whole[:rows], rtol=0, atol=1e-5)


def test_linear_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError):
        pack(normal(4, 3), normal(5))
    for x in (normal(2, 4), normal(2, 3, dtype=torch.bfloat16), normal(3)):
        with pytest.raises(ValueError, match="does not fit"):
            linear(x, pack(normal(4, 3)))


@DTYPES
def test_kv_write_touches_its_slots_and_nothing_else(dtype: torch.dtype) -> None:
    pool = torch.full((5, 2, 3, 2, 4, 8), -1.0, dtype=dtype)
    want = pool.clone()
    pages, slots = torch.tensor([3, 0, 3]), torch.tensor([1, 2, 3])
    both = normal(3, 4, 8, dtype=dtype)
    k, v = both[:, :2], both[:, 2:]  # strided, as the qkv projection gives them
    rows = kv_rows(pool, pages, slots)
    kv_write(pool, 2, rows, k, v)
    for t in range(3):
        for kind, source in enumerate((k, v)):
            want[pages[t], :, 2, kind, slots[t]] = source[t]
    assert torch.equal(pool, want)


def test_kv_write_refuses_what_does_not_fit() -> None:
    pool = torch.zeros(5, 2, 3, 2, 4, 8)
    for pages, slots in (([5], [0]), ([0], [4]), ([-1], [0]), ([0, 1], [0])):
        with pytest.raises(ValueError):
            kv_rows(pool, torch.tensor(pages), torch.tensor(slots))
    rows = kv_rows(pool, torch.tensor([0]), torch.tensor([0]))
    with pytest.raises(ValueError, match="do not fit"):
        kv_write(pool, 0, rows, normal(2, 2, 8), normal(2, 2, 8))
    with pytest.raises(ValueError, match="heads of 8"):
        kv_write(pool, 0, kv_rows(pool, torch.arange(2), torch.arange(2)), normal(1, 4, 8), normal(1, 4, 8))
    with pytest.raises(ValueError, match="bfloat16"):
        kv_write(pool, 0, rows, *(normal(1, 2, 8, dtype=torch.bfloat16),) * 2)
    for layer in (-1, 3):
        with pytest.raises(ValueError, match=f"layer {layer} is outside"):
            kv_write(pool, layer, rows, normal(1, 2, 8), normal(1, 2, 8))
    assert not pool.any()
