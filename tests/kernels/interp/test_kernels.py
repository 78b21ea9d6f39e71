"""Every kernel against its reference in the interpreter, in program order and in a drawn one."""

from __future__ import annotations

import importlib

import pytest

from tests.kernels.cases.case import Case, Stage
from tests.kernels.cases.table import CASES
from tests.kernels.interp.sanitizer import Sanitizer, watching

PLAYED = [
    pytest.param(op, case, id=f"{op}: {case.name}", marks=pytest.mark.slow if case.slow else ())
    for op, make in CASES.items()
    for case in make()
]


def stage(op: str, sanitizer: Sanitizer) -> Stage:
    return Stage(importlib.import_module(f"kernels.ops.{op}.kernel"), fresh=sanitizer.fresh)


@pytest.mark.parametrize(("op", "case"), PLAYED)
def test_kernel(op: str, case: Case, sanitizer: Sanitizer) -> None:
    case.play(stage(op, sanitizer))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("op", "case"), [p for p in PLAYED if not p.values[1].slow])
def test_the_order_of_programs_does_not_matter(op: str, case: Case, seed: int) -> None:
    with watching(shuffle=seed) as sanitizer:
        case.play(stage(op, sanitizer))
