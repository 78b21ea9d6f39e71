"""The sample of the interpreter's lane, in its own process: `make kernels` runs all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)  # a minute alone; it shares two cores with running engines
def test_kernels_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "not slow", "tests/kernels/interp"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=880,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_an_operation_on_the_cpu_imports_no_triton() -> None:
    code = (
        "import sys, torch, kernels.registry; from kernels.ops.rms_norm import rms_norm;"
        "rms_norm(torch.ones(2, 4), torch.ones(4), 1e-5); print('triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr


def test_the_registry_imports_no_torch() -> None:
    code = "import sys, kernels.registry; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
