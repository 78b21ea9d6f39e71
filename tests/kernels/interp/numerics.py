"""bfloat16 and float8 in Triton's interpreter.

The interpreter keeps them as integers and computes on their bits. Here every operation on them goes through
float32 and torch's rounding, so that a kernel's source is tested as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.runtime.interpreter as interpreter

KNOWN = "3.9.0"
_TORCH = {"bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
_BITS = {2: (torch.int16, np.int16, np.uint16), 1: (torch.uint8, np.uint8, np.uint8)}
_BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
_BUILDER = interpreter.InterpreterBuilder
_HANDLE = interpreter.TensorHandle


def _small(dtype: Any) -> bool:
    return getattr(dtype, "scalar", dtype).name in _TORCH


def _wide(data: Any, dtype: Any) -> Any:
    kind = _TORCH[getattr(dtype, "scalar", dtype).name]
    raw = np.ascontiguousarray(data).view(_BITS[kind.itemsize][1])
    return torch.from_numpy(raw).view(kind).float().numpy().reshape(np.shape(data))


def _narrow(data: Any, dtype: Any) -> Any:
    kind = _TORCH[getattr(dtype, "scalar", dtype).name]
    raw = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32)).to(kind)
    signed, _, unsigned = _BITS[kind.itemsize]
    return raw.view(signed).numpy().view(unsigned).reshape(np.shape(data))


def _convert(source: Any, to: Any) -> Any:
    data = _wide(source.data, source.dtype) if _small(source.dtype) else source.data
    to = to.scalar
    return _HANDLE(_narrow(data, to) if _small(to) else data.astype(interpreter._get_np_dtype(to)), to)


def install() -> None:
    """Patch the interpreter, once a process. RuntimeError for a Triton that this was not checked against."""
    if triton.__version__ != KNOWN:
        raise RuntimeError(f"Triton {triton.__version__}: these patches are checked against {KNOWN}")
    if getattr(_BUILDER, "small_floats", False):
        return
    _BUILDER.small_floats = True
    _arithmetic()
    _casts()
    whole = interpreter.ReduceOps.sum

    def total(self: Any, value: Any) -> Any:
        if not _small(value.dtype):
            return whole(self, value)
        wide = np.sum(_wide(value.handle.data, value.dtype), axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(_narrow(wide, value.dtype), value.dtype)

    interpreter.ReduceOps.sum = total
    _quicker()


def _quicker() -> None:
    """The interpreter patches the language anew at every call of a device function: once a launch will do."""
    patch, run = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[Any] = set()

    def once(function: Any) -> Any:
        if function in patched:
            return interpreter._LangPatchScope()
        patched.add(function)
        return patch(function)

    def launch(self: Any, *args: Any, **named: Any) -> None:
        patched.clear()
        run(self, *args, **named)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = once, launch


def _arithmetic() -> None:
    binary, unary, product = _BUILDER.binary_op, _BUILDER.unary_op, _BUILDER.create_dot

    def binary_op(self: Any, left: Any, right: Any, op: Any) -> Any:
        if not _small(left.dtype) or op in _BITWISE:
            return binary(self, left, right, op)
        out = op(_wide(left.data, left.dtype), _wide(right.data, right.dtype))
        return _HANDLE(out if out.dtype == np.bool_ else _narrow(out, left.dtype), left.dtype.scalar)

    def unary_op(self: Any, value: Any, op: Any) -> Any:
        if not _small(value.dtype):
            return unary(self, value, op)
        return _HANDLE(_narrow(op(_wide(value.data, value.dtype)), value.dtype), value.dtype.scalar)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        if not _small(a.dtype) and not _small(b.dtype):
            return product(self, a, b, d, precision, imprecise)
        wide = [_wide(x.data, x.dtype) if _small(x.dtype) else x.data.astype(np.float32) for x in (a, b)]
        return _HANDLE(np.matmul(*wide).astype(d.data.dtype) + d.data, d.dtype.scalar)

    _BUILDER.binary_op, _BUILDER.unary_op, _BUILDER.create_dot = binary_op, unary_op, create_dot


def _casts() -> None:
    cast, float_cast = _BUILDER.cast_impl, _BUILDER.create_fp_to_fp

    def cast_impl(self: Any, source: Any, to: Any) -> Any:
        return _convert(source, to) if _small(source.dtype) or _small(to) else cast(self, source, to)

    def fp_to_fp(self: Any, source: Any, to: Any, rounding: Any) -> Any:
        if (_small(source.dtype) or _small(to)) and "RTZ" not in str(rounding):
            return _convert(source, to)
        return float_cast(self, source, to, rounding)

    _BUILDER.cast_impl, _BUILDER.create_fp_to_fp = cast_impl, fp_to_fp
