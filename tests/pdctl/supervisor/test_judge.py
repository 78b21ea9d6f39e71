"""From verdicts to cells, and what a look makes suspicious or says nothing of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdctl.adapters.picture import Counters, Progress, Queue, Reach
from pdctl.bundle.documents import load
from pdctl.bundle.read import facts_of
from pdctl.diagnose.report import Report, make
from pdctl.diagnose.rule import Finding, Severity
from pdctl.diagnose.verdict import Placed, Verdict
from pdctl.supervisor.judge import cut_off, seen, serves, suspicions
from pdctl.supervisor.observation import HostLook, RouterLook
from tests.pdctl.supervisor.bed import SILENT, Bed, engine, peer

RECORDED = Path(__file__).parents[2] / "cases/bundles/healthy"
CELLS = {"prefill-0": "a", "decode-0": "a", "prefill-1": "b", "decode-1": "b"}


def report(*findings: Finding, caused_by: int | None = None, now: float = 2000.0) -> Report:
    """Of a fleet whose engines have lived since second 1000; `now` by their clock."""
    placed = tuple(Placed(f, caused_by if n else None) for n, f in enumerate(findings))
    state: Any = SimpleNamespace(started_at=1000.0, ready=True, now=now)
    views: list[Any] = [SimpleNamespace(name=n, state=state) for n in CELLS]
    router: Any = SimpleNamespace(name="router", state=state)
    facts: Any = SimpleNamespace(engines=views, router=router)
    ran: Any = None
    return Report(facts, ran, Verdict("cause", "", placed), (), 0.0)


def found(code: str = "PD501", *touches: str, **more: Any) -> Finding:
    severity = more.pop("severity", Severity.ERROR)
    return Finding(code, severity, touches[0], "so it is", (), "", frozenset(touches), **more)


def test_what_counts_is_an_error_at_the_root_with_its_cell() -> None:
    edge = found("PD501", "prefill-0", "decode-0")
    effect = found("PD602", "prefill-0", "decode-0")
    warning = found("PD204", "decode-1", severity=Severity.WARNING)
    both = found("PD701", "prefill-0", "prefill-1")
    (one,) = seen(report(edge, effect, caused_by=0), CELLS)
    assert (one.code, one.cell) == ("PD501", "a")
    assert seen(report(warning), CELLS) == []
    assert [s.cell for s in seen(report(both), CELLS)] == [""], "of two cells, so of none alone"
    assert [s.cell for s in seen(report(found("PD201", "router")), CELLS)] == [""]


def test_what_an_armed_fault_does_is_as_wrong_as_if_it_came_by_itself() -> None:
    armed = found("PD606", "prefill-0", severity=Severity.WARNING)
    frozen = found("PD202", "prefill-0")
    assert [s.code for s in seen(report(armed, frozen, caused_by=0), CELLS)] == ["PD202"]
    crowded = found("PD715", "prefill-0", severity=Severity.WARNING)
    assert seen(report(crowded, frozen, caused_by=0), CELLS) == [], "what explains it otherwise stays so"


@pytest.mark.parametrize(("since", "past"), [(900.0, True), (999.0, False), (1500.0, False), (None, False)])
def test_what_befell_an_earlier_life_is_not_wrong_now(since: float | None, past: bool) -> None:
    killed = found("PD210", "decode-0", "router", "a-host", since=since)
    assert (seen(report(killed), CELLS) == []) is past
    assert len(seen(report(killed, now=900.0), CELLS)) == 1, "of a clock that was set back since"


@pytest.mark.parametrize("name", sorted(p.name for p in RECORDED.glob("recorded-*")))
def test_a_fleet_that_has_nothing_gives_nothing(name: str) -> None:
    facts = facts_of(load(RECORDED / name), 0.0)
    assert seen(make(facts, 0.0), {e.name: e.member.cell for e in facts.engines}) == []


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


PROGRESS = Progress(5, 0.1, None, 0.1, 10, 10)
LATE = Counters({"inflight": 1}, {"kv_transfer_timeout": 1}, 5, 1, 0, 0.0)


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ({}, SILENT, "silent"),
        ({}, {"ready": False, "not_ready": ("link",)}, "is not ready: link"),
        ({}, {"status": "draining"}, "is draining"),
        ({}, {"snapshot_age": 9.0}, "publishes nothing new"),
        ({}, {"peers": (peer("decode-a", stale=True),)}, "no live link to decode-a"),
        ({}, {"peers": (replace(peer("decode-a"), incarnation="old"),)}, "an old life of decode-a"),
        ({}, {"incarnation": "new"}, "began a new life"),
        ({"counters": replace(LATE, deadlines_fired={})}, {"counters": LATE}, "the deadline inflight fired"),
        (
            {"counters": replace(LATE, requests_failed={})},
            {"counters": LATE},
            "failed with kv_transfer_timeout",
        ),
        (
            {"progress": PROGRESS},
            {"progress": PROGRESS, "queues": {"running": Queue(2, 1.0)}},
            "nothing moves",
        ),
        (
            {"progress": PROGRESS},
            {"progress": PROGRESS, "queues": {"inflight": Queue(1, 9.0)}},
            "nothing moves",
        ),
        (
            {"progress": PROGRESS},
            {"progress": replace(PROGRESS, tokens_generated=11), "queues": {"inflight": Queue(1, 9.0)}},
            "",
        ),
    ],
)
def test_a_look_that_is_suspicious_says_why(
    bed: Bed, then: dict[str, Any], now: dict[str, Any], words: str
) -> None:
    before, after = bed.seen(prefill_a=then), bed.seen(prefill_a=now)
    said = suspicions(before, after)
    if words:
        assert set(said) == {"a"} and any(words in line for line in said["a"]), said
    else:
        assert said == {}


def test_nobody_answers_is_no_dead_fleet_but_refusals_are(bed: Bed) -> None:
    silent = {f"{side}_{cell}": SILENT for side in ("prefill", "decode") for cell in "ab"}
    refused = {name: SILENT | {"reach": Reach.REFUSED} for name in silent}
    gone = RouterLook("router", "local", reach=Reach.TIMED_OUT)
    assert cut_off(bed.seen(router=gone, **silent))
    assert not cut_off(bed.seen(router=replace(gone, reach=Reach.REFUSED), **refused))
    assert not cut_off(bed.seen(router=gone, **{**silent, "decode_b": {}})), "one answers"
    there = (HostLook("far", True, 0, 0),)
    assert not cut_off(bed.seen(router=gone, hosts=there, **silent)), "a host answers"


def test_a_cell_serves_with_a_side_of_each_kind_or_whole_engines() -> None:
    prefill, decode = engine("prefill-a"), engine("decode-a")
    assert serves((prefill, decode)) and serves((engine("both-a"),))
    assert not serves((prefill,)) and not serves((prefill, replace(decode, status="drained")))
    assert not serves((prefill, replace(decode, ready=False)))
