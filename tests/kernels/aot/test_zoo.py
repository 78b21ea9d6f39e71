"""The faults that only compiling shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.aot import launches
from tests.kernels.aot.table import Build, committed, stale, wrong
from tests.kernels.zoo import Fault, faults, planted


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, id=f.name, marks=() if f.sample else pytest.mark.slow) for f in faults("compiler")],
)
def test_the_fault_is_seen(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with planted(fault, tmp_path) as kernel:
        monkeypatch.setattr(launches, "decode", kernel)
        for variant in launches.VARIANTS:
            for arch in launches.ARCHES:
                if variant.op == fault.op and f"{variant.name} sm_{arch}" == fault.case:
                    for name, launch in launches.launches(variant, arch):
                        build = Build(f"{variant.op}.{name} {variant.name} sm_{arch}", arch, launch)
                        said += wrong(build, committed())
    assert fault.seen in "\n".join(said)


def test_an_unmeasured_change_is_seen_without_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = ("paged_decode_attention/kernel.py", "tl.maximum(top, tl.max(score, 1))", "tl.max(score, 1)")
    with planted(Fault("x", "paged_decode_attention", "", "", (edit,)), tmp_path) as kernel:
        monkeypatch.setattr(launches, "decode", kernel)
        changed = list(stale(committed()))
    assert changed and all("attend" in c and "has changed" in c for c in changed)
