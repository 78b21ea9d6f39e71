"""Every kernel compiles for every architecture, within its limits, without spills, and as it was measured."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from kernels.registry import OPS
from tests.kernels.aot.launches import VARIANTS
from tests.kernels.aot.measure import LIMITS
from tests.kernels.aot.table import Build, builds, committed, stale, wrong

SAMPLE = "paged_decode_attention.attend 9/3 x 64 sm_"
HINT = "when it is as it should be: python -m tests.kernels.aot && make docs"


def test_the_table_is_of_these_kernels() -> None:
    """Nothing is compiled for this: a kernel that has changed was not measured."""
    assert list(stale(committed())) == [], HINT


def test_every_build_has_a_name_of_its_own() -> None:
    names = [build.name for build in builds()]
    assert len(set(names)) == len(names)


def test_every_operation_with_a_kernel_is_measured() -> None:
    assert {v.op for v in VARIANTS} == {op.name for op in OPS.values() if not op.why}


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(b, id=b.name, marks=() if b.name.startswith(SAMPLE) else pytest.mark.slow)
        for b in builds()
    ],
)
def test_the_build(build: Build) -> None:
    assert list(wrong(build, committed())) == [], HINT


def test_what_the_table_says_is_within_the_limits() -> None:
    for name, row in committed().items():
        limits = LIMITS[int(name.rpartition("sm_")[2])]
        assert row["shared"] <= limits.block_shared and row["ctas"] >= 1, name


def test_reference_and_kernel_take_the_same_operands() -> None:
    for op in OPS.values():
        for function in op.functions:
            reference = op.implementation("reference", function)
            if not op.why:
                kernel = op.implementation("kernel", function)
                assert list(inspect.signature(kernel).parameters) == list(
                    inspect.signature(reference).parameters
                ), f"{op.name}.{function}"


def test_every_folder_is_registered() -> None:
    root = Path(__file__).parents[3] / "kernels" / "ops"
    folders = {p.parent.name for p in root.glob("*/reference.py")}
    assert folders == set(OPS)
    assert {p.parent.name for p in root.glob("*/kernel.py")} == {op.name for op in OPS.values() if not op.why}
