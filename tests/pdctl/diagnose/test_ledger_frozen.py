"""The ledger says who holds a request when that party is frozen, and whose pages are whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pdctl.diagnose.ledger import Entry
from pdctl.diagnose.report import document, make
from pdctl.facts.missing import Missing
from pdctl.facts.process import Child, Process
from pdctl.render.diagnose import story

AT = 1_700_000_000.0
Scene = Any


def stopped(scene: Scene, name: str) -> None:
    children = (Child(201, "sleeping", "rank 0"), Child(202, "stopped", "rank 1"))
    scene.processes[name] = Process(200, "sleeping", AT - 900, {}, children)


def silent(scene: Scene, name: str) -> None:
    """Its processes cannot be looked at; what it says of its ranks can."""
    scene.processes[name] = Missing("it runs on another host")
    scene.docs[name]["ranks"].append({"rank": 1, "pid": 202, "heartbeat_age_s": 11.0})


def stale(scene: Scene, name: str) -> None:
    scene.docs[name]["snapshot_age_s"] = 11.0


FROZEN: dict[Callable[[Scene, str], None], str] = {
    stopped: "decode-0 is frozen: pid 202 is stopped",
    silent: "decode-0 is frozen: rank 1 was last heard 11 s ago",
    stale: "decode-0 is frozen: it last published its state 11 s ago",
}


def _stepping(scene: Scene, seconds: float) -> None:
    """Its leader is inside a step, and publishes: what one rank waits for in a forward looks like work."""
    scene.docs["decode-0"]["progress"]["stepping_s"] = seconds


def _entry(scene: Scene) -> Entry:
    (entry,) = make(scene.facts(), 1.0).ledger
    return entry


@pytest.mark.parametrize("how", FROZEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("stage", ["running", "ready", "transferring", "waiting"])
def test_what_a_frozen_decode_holds_is_stuck(
    scene: Scene, legs: Any, how: Callable[[Scene, str], None], stage: str
) -> None:
    scene.route("r7", 11.9)
    scene.hold("decode-0", legs("r7", stage, stage_age_s=11.2, age_s=11.9))
    _stepping(scene, 11.2)
    if stage in ("running", "ready"):
        assert _entry(scene).verdict == "moving", "a step of eleven seconds is no freeze"
    how(scene, "decode-0")
    entry = _entry(scene)
    assert (entry.verdict, entry.holder, entry.why) == ("stuck", "decode-0", FROZEN[how])
    assert "stuck: held by decode-0" in story(entry)


@pytest.mark.parametrize("how", FROZEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("known", [True, False])
def test_what_waits_for_a_frozen_decode_is_stuck_by_it(
    scene: Scene, legs: Any, how: Callable[[Scene, str], None], known: bool
) -> None:
    scene.route("r7", 11.9)
    scene.hold("prefill-0", legs("r7", "inflight", stage_age_s=11.0, waiting_on="taken", peer="decode-0"))
    if known:
        scene.hold("decode-0", legs("r7", "running", stage_age_s=11.0))
    _stepping(scene, 11.2)
    how(scene, "decode-0")
    entry = _entry(scene)
    assert (entry.verdict, entry.lost) == ("stuck", "peer")
    assert not known or (entry.holder, entry.why) == ("decode-0", FROZEN[how])


@pytest.mark.parametrize("stage", ["prefilling", "waiting", "inflight"])
def test_what_a_frozen_prefill_holds_is_stuck(scene: Scene, legs: Any, stage: str) -> None:
    scene.route("r7", 2.0)
    scene.hold("prefill-0", legs("r7", stage, stage_age_s=2.0))
    scene.docs["prefill-0"]["progress"]["stepping_s"] = 2.0
    stopped(scene, "prefill-0")
    entry = _entry(scene)
    assert (entry.verdict, entry.holder) == ("stuck", "prefill-0")
    assert entry.why == "prefill-0 is frozen: pid 202 is stopped"


def test_what_a_frozen_engine_may_hold_is_not_forgotten(scene: Scene) -> None:
    scene.route("r7", 40.0)
    assert _entry(scene).verdict == "forgotten"
    stopped(scene, "decode-0")
    entry = _entry(scene)
    assert (entry.verdict, entry.holder) == ("unknown", "decode-0")
    assert "decode-0 is frozen" in entry.why


def test_pages_are_told_for_each_leg(scene: Scene, legs: Any) -> None:
    scene.route("r7", 12.0)
    inflight = {"stage_age_s": 12.0, "waiting_on": "transfer", "peer": "decode-0"}
    scene.hold("prefill-0", legs("r7", "inflight", pages=1, **inflight))
    scene.hold("decode-0", legs("r7", "transferring", pages=3, stage_age_s=12.0, waiting_on="transfer"))
    report = make(scene.facts(), 1.0)
    (row,) = document(report)["ledger"]
    assert (row["prefill_pages"], row["decode_pages"]) == (1, 3)
    (line,) = report.verdict.findings[0].finding.evidence
    assert "waiting on transfer; 1 page on prefill-0, 3 pages on decode-0; the write" in line


def test_pages_of_a_leg_that_nobody_holds_are_not_told(scene: Scene, legs: Any) -> None:
    scene.route("r7", 12.0)
    scene.hold("prefill-0", legs("r7", "inflight", pages=1, stage_age_s=12.0, waiting_on="want"))
    report = make(scene.facts(), 1.0)
    (row,) = document(report)["ledger"]
    assert (row["prefill_pages"], row["decode_pages"]) == (1, None)
    assert (
        "waiting on want; 1 page on prefill-0; decode-0 answers"
        in report.verdict.findings[0].finding.evidence[0]
    )
