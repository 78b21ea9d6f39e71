"""The frame itself: a fault aimed at the wrong target is reported as one that did not happen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bed import QUICK, Bed
from tests.faults.cell import Cell, Fault, NoEffectError, measured, run
from tests.faults.kinds import Armed, Kill, Stop
from tests.faults.load import Load

P, D = "prefill-0", "decode-0"


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process that is no part of the pair."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait(10)


@pytest.mark.parametrize("what", ["kill", "stop", "arm"])
def test_a_wrong_target_is_no_fault(
    bed: Bed, bystander: int, what: str, tmp_path: Path, record: Path | None
) -> None:
    faults: dict[str, Fault] = {
        "kill": Kill(D, "rank 0", aim=bystander),
        "stop": Stop(P, "rank 1", 1.0, aim=bystander),
        "arm": Armed(P, "stall-transfer", aim=D),
    }
    results = tmp_path / "results"
    cell = Cell(1, f"control: {what}", "a wrong target", lambda: faults[what])
    try:
        with pytest.raises(NoEffectError, match="did not take effect"):
            run(bed, cell, results, evidence_within=3.0)
    finally:
        if what == "arm":
            bed.stack.admin(D, "faults", name="stall-transfer", armed=False)
    line = json.loads(results.read_text())
    assert line["evidence"] == "" and "did not take effect" in line["problems"][0]
    if record is not None:
        with record.open("a") as file:
            file.write(json.dumps(line | {"row": 0, "problems": [], "evidence": line["problems"][0]}) + "\n")


def test_a_cell_without_evidence_fails_even_when_all_went_well(tmp_path: Path) -> None:
    with pytest.raises(NoEffectError), measured(13, "nothing", "nowhere", tmp_path / "results"):
        pass


def test_a_cell_of_no_row_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="row 99"), measured(99, "x", "y", tmp_path / "results"):
        pass
    assert not (tmp_path / "results").exists()


def test_a_bed_runs_as_the_product_ships_but_for_its_deadlines(bed: Bed) -> None:
    """The prefix cache is on: of the load's prompts it knows some, and some it does not."""
    assert all(name.endswith("_TIMEOUT") for name in QUICK)
    bed.heal()
    before = bed[P].state()["counters"]
    with Load(bed.url, bed.right, agents=(1,)) as load:
        load.wait_rights(6, 0.0, 120.0, "answers to prompts that are known and to some that are not")
    now = bed[P].state()["counters"]
    asked, hit = (now[name] - before[name] for name in ("prefix_tokens", "prefix_tokens_hit"))
    assert 0.2 < hit / asked < 0.8, (asked, hit)
