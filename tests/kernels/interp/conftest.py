"""Every kernel here runs under the sanitizer, and memory that nobody filled is NaN."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.kernels.interp import numerics
from tests.kernels.interp.sanitizer import Sanitizer, watching

numerics.install()


@pytest.fixture(autouse=True)
def sanitizer() -> Iterator[Sanitizer]:
    # torch.empty is filled with NaN then; the public switch first loads torch's compiler, which takes seconds
    torch._C._set_deterministic_algorithms(True)
    with watching() as active:
        yield active
    torch._C._set_deterministic_algorithms(False)
