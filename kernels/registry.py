"""Every operation by name. Imports neither torch nor triton.

An operation is a folder `kernels/ops/<name>`: `reference.py` in torch is the truth and the CPU path,
`kernel.py` in Triton the CUDA path (`kernels/dispatch.py`). Both refuse wrong operands with ValueError;
neither steps in for the other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Op:
    """`functions` have one signature in both; without a kernel, `why` says what runs on CUDA."""

    name: str
    functions: tuple[str, ...]
    why: str = ""

    def implementation(self, backend: str, function: str) -> Callable[..., Any]:
        """`backend` is reference or kernel. ValueError for what the operation does not have."""
        if function not in self.functions or backend not in ("reference", "kernel"):
            raise ValueError(
                f"{self.name} has no {backend} of {function!r}; it has {', '.join(self.functions)}"
            )
        if backend == "kernel" and self.why:
            raise ValueError(f"{self.name} has no kernel: {self.why}")
        module = importlib.import_module(f"kernels.ops.{self.name}.{backend}")
        return cast(Callable[..., Any], getattr(module, function))


_TABLE = (
    Op("compress", ("compress",)),
    Op("index_k", ("write_index_k", "verify_index_k")),
    Op("index_logits", ("index_logits",)),
    Op("kv_pack", ("kv_pack", "kv_unpack")),
    Op("kv_write", ("kv_rows", "kv_write"), "one indexed copy of torch is one launch"),
    Op("linear", ("pack", "linear"), "a matrix product is the vendor's library"),
    Op("mla_decode", ("mla_decode",)),
    Op("page_checksum", ("page_checksum",)),
    Op("paged_decode_attention", ("plan_decode", "replan_decode", "paged_decode_attention")),
    Op("paged_prefill_attention", ("plan_prefill", "paged_prefill_attention")),
    Op("rms_norm", ("rms_norm",)),
    Op("rope", ("rope", "rope_inverse")),
    Op("sample", ("greedy",)),
    Op("sparse_decode", ("sparse_decode",)),
    Op("topk", ("topk",)),
)
OPS = {op.name: op for op in _TABLE}
