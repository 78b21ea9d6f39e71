"""Each planted fault is seen, and as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.cases.case import Stage
from tests.kernels.cases.table import CASES
from tests.kernels.interp.sanitizer import Sanitizer
from tests.kernels.zoo import Fault, faults, planted


def seen(fault: Fault, stage: Stage) -> str:
    """What the first case that fails says; nothing when all pass."""
    for case in CASES[fault.op]():
        if fault.case in case.name and (fault.case or not case.slow):
            try:
                case.play(stage)
            except Exception as error:
                return f"{case.name}: {error}"
    return ""


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=f.name, marks=() if f.sample else pytest.mark.slow) for f in faults("interpreter")],
)
def test_the_fault_is_seen(fault: Fault, tmp_path: Path, sanitizer: Sanitizer) -> None:
    with planted(fault, tmp_path) as kernel:
        said = seen(fault, Stage(kernel, fresh=sanitizer.fresh))
    assert fault.seen in said
