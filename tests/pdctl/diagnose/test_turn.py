"""What a prefill inside a long step has not settled yet, or has not come to, is not pinned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pdctl.adapters.signs import TABLE
from pdctl.adapters.traces import Traces
from pdctl.diagnose.ledger import join
from pdctl.diagnose.report import make


def busy(scene: Any, side: str = "prefill-0", inside: float = 8.0) -> None:
    """The engine has been inside one step since before the first sample."""
    progress = scene.docs[side]["progress"]
    progress |= {"stepping_s": inside, "loop_age_s": inside, "last_step_age_s": inside}


def codes(scene: Any) -> list[str]:
    return [p.finding.code for p in make(scene.facts(), 1.0).verdict.findings if p.finding.severity > 0]


def verdicts(scene: Any) -> dict[str, str]:
    return {entry.id: entry.verdict for entry in join(scene.facts())}


def test_what_was_handed_over_during_a_step_is_not_pinned(scene: Any, legs: Any) -> None:
    """Its room is gone from the transfer layer, decode has it or is done; the step settles it."""
    busy(scene)
    scene.hold("prefill-0", *(legs(id, "inflight", age_s=60.0, stage_age_s=7.0) for id in ("r1", "r2")))
    scene.hold("decode-0", legs("r2", "running", age_s=60.0, stage_age_s=6.5, output_tokens=4))
    scene.steps["decode-0"] = 3
    scene.route("r2", 60.0, stage="streaming")
    assert codes(scene) == []
    assert set(verdicts(scene).values()) == {"moving"}


def test_a_prefill_that_makes_no_step_does_not_settle(scene: Any, legs: Any) -> None:
    scene.hold("prefill-0", legs("r1", "inflight", age_s=60.0, stage_age_s=40.0))
    assert verdicts(scene) == {"r1": "stuck"}


def test_a_wanted_prompt_that_waits_for_its_turn_is_not_pinned(scene: Any, legs: Any) -> None:
    """Prefill has said that it heard the Want, whatever its scheduler knew before the step."""
    busy(scene)
    prompt = {"age_s": 60.0, "stage_age_s": 52.0, "pages": 0, "waiting_on": "decode", "peer": "decode-0"}
    scene.hold("prefill-0", legs("r1", "waiting", **prompt))
    scene.hold("decode-0", legs("r1", "preallocated", age_s=60.0, stage_age_s=6.0, waiting_on="turn"))
    scene.route("r1", 60.0)
    assert codes(scene) == [] and verdicts(scene) == {"r1": "waiting"}
    scene.docs["decode-0"]["requests"][0]["waiting_on"] = "transfer"  # it has heard nothing
    lead = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert lead.code == "PD602" and "Want was lost" in lead.summary and "for 6.0 s" in lead.summary


def test_a_decode_whose_places_wait_for_kv_has_nothing_to_step_on(scene: Any, legs: Any) -> None:
    waits = {"age_s": 60.0, "waiting_on": "turn"}
    scene.hold("decode-0", legs("r1", "preallocated", stage_age_s=57.0, **waits))
    scene.hold("decode-0", legs("r2", "waiting", age_s=60.0, stage_age_s=57.0, pages=0, waiting_on="slot"))
    busy(scene)
    for id in ("r1", "r2"):
        waits = {"age_s": 60.0, "stage_age_s": 57.0, "pages": 0, "waiting_on": "decode"}
        scene.hold("prefill-0", legs(id, "waiting", **waits))
        scene.route(id, 60.0)
    assert codes(scene) == [] and set(verdicts(scene).values()) == {"waiting"}


def test_a_room_that_no_decode_shows_is_blamed_on_who_is_known(scene: Any, legs: Any) -> None:
    """The router has forgotten it and the room names no peer: the cell's decode answers."""
    scene.hold("prefill-0", legs("r1", "inflight", age_s=60.0, stage_age_s=40.0, waiting_on="want"))
    lead = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert lead.code == "PD602" and "does not know it" in lead.summary
    assert lead.summary.startswith("1 request is pinned on prefill-0,")
    scene.docs.pop("decode-0")
    scene.docs["prefill-0"]["peers"] = []
    assert "no decode was looked at" in make(scene.facts(), 1.0).verdict.findings[0].finding.summary


def test_requests_that_came_during_a_step_are_not_lost(scene: Any, legs: Any) -> None:
    """The scheduler takes them in between two steps; decode may have heard of the Want, or not."""
    busy(scene)
    for id, waits_on in (("r1", "turn"), ("r2", "transfer")):
        leg = legs(id, "preallocated", age_s=7.0, stage_age_s=7.0, waiting_on=waits_on)
        scene.hold("decode-0", leg)
        scene.route(id, 7.0)
    scene.route("r3", 6.0)
    assert codes(scene) == [] and verdicts(scene) == {"r1": "waiting", "r2": "moving", "r3": "moving"}
    scene.docs["prefill-0"]["progress"] |= {"stepping_s": None, "loop_age_s": 0.1, "last_step_age_s": 9.0}
    assert {"PD601", "PD602"} <= set(codes(scene))


def test_errors_of_an_engine_that_has_nothing_to_do_hinder_nothing(scene: Any, legs: Any) -> None:
    line = "2026-11-30 09:00:00,000 ERROR engine.api.run: abort of r1 by client was not taken within 5 s"
    facts = scene.facts()
    traces = Traces(events=TABLE.scan(line, "prefill-0", "prefill-0/log.txt"), lines=1)
    for held, told in ((False, False), (True, True)):
        if held:
            scene.hold("prefill-0", legs("r1", "waiting", age_s=4.0, stage_age_s=4.0))
            facts = scene.facts()
        engines = tuple(replace(e, traces=traces) if e.name == "prefill-0" else e for e in facts.engines)
        found = make(replace(facts, engines=engines), 1.0).verdict.findings
        assert any(p.finding.code == "PD226" for p in found) == told
