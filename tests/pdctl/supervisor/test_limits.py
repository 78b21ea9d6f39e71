"""What is tried again and again: acts that are cut off or refused, and incidents by the hundred."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pdctl.supervisor.incidents import ACTS
from pdctl.supervisor.policy import Act
from pdctl.supervisor.states import State
from tests.pdctl.supervisor.bed import Bed, finding

WEDGE = finding("PD501")


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    made = Bed(tmp_path)
    made.quiet(seconds=30)
    return made


def test_an_act_whose_supervisor_died_is_a_try(bed: Bed) -> None:
    for _ in range(2):
        bed.ward.began(*bed.until(WEDGE, seconds=1500))
        bed.clock.pass_(20)
        bed.born()
    assert [a.outcome for a in bed.store.actions()] == ["cut-off", "cut-off"]
    bed.quiet(WEDGE, seconds=600)
    assert bed.state() is State.PERSON and "was done 2 times" in bed.store.recent()[0].timeline[-1].text


def test_what_is_refused_is_tried_less_and_less_often_and_a_person_is_told_once(bed: Bed) -> None:
    begun = bed.clock.now()
    at = []
    while bed.clock.now() < begun + 6 * 3600:
        for case, decision in bed.look(WEDGE):
            at.append(bed.clock.now())
            bed.act(case, decision, "refused", seconds=0.0)
    waits = [after - before for before, after in itertools.pairwise(at)]
    assert len(at) < 20 and waits == sorted(waits) and waits[0] <= 40.0 and 1800.0 <= waits[-1] <= 1810.0
    assert bed.state() is State.ILL, "a wedge that can be proven later is healed"
    assert bed.told() == ["opened", "person"]
    bed.act(*bed.until(WEDGE, seconds=2000.0))
    assert bed.ward.cases["a"].refused == 0


def test_the_tries_of_an_incident_are_known_behind_any_number_of_refused_ones(bed: Bed) -> None:
    case, decision = bed.until(WEDGE)
    for _ in range(ACTS + 20):
        bed.store.act(case.incident, Act.CO_RESTART, "a", "refused")
    bed.act(case, decision, "failed")
    assert len(bed.store.actions(case.incident, 10_000)) == ACTS
    bed.born()
    assert [d.act for d in bed.ward.cases["a"].tried] == [Act.CO_RESTART]


def test_an_incident_whose_cell_is_well_from_a_successor_s_first_look_on_ends(bed: Bed) -> None:
    bed.until(WEDGE)
    bed.born()
    bed.quiet(seconds=120.0)
    (incident,) = bed.store.recent()
    assert not incident.open and bed.state() is State.SERVING
    assert bed.told() == ["closed"]


def test_a_successor_takes_over_however_many_incidents_are_open(tmp_path: Path) -> None:
    bed = Bed(tmp_path, cells=tuple(f"c{n}" for n in range(120)))
    bed.quiet(seconds=30)
    ill = [finding("PD443", cell=cell) for cell in bed.cells]
    for _ in range(30):
        bed.look(*ill)
    assert bed.told().count("opened") == 120
    bed.born()
    for _ in range(30):
        bed.look(*ill)
    assert "opened" not in bed.told() and len(bed.store.recent(1000, open_only=True)) == 120
