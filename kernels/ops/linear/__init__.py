"""x @ weight.T + bias with the weight laid out once for the machine."""

from kernels.ops.linear.reference import PackedLinear, invariant_rows, linear, pack

__all__ = ["PackedLinear", "invariant_rows", "linear", "pack"]
