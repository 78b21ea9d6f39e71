"""Every operation with a kernel has cases; a test holds this table equal to the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.kernels.cases import decode, rowwise
from tests.kernels.cases.case import Case

CASES: dict[str, Callable[[], Iterable[Case]]] = {
    "paged_decode_attention": decode.cases,
    "rms_norm": rowwise.norm_cases,
    "rope": rowwise.rope_cases,
}
