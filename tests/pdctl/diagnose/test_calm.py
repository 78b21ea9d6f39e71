"""What is over becomes a note, and what cannot be known is not said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pdctl.adapters.signs import TABLE
from pdctl.adapters.traces import Traces
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.report import make
from pdctl.diagnose.rule import Finding, Severity
from pdctl.facts.missing import Missing
from pdctl.facts.process import Child, Process
from pdctl.facts.unit import Unit

AT = 1_700_000_000.0
INFO, WARNING = Severity.INFO, Severity.WARNING
DECODE, PREFILL = "PD_DECODE_TRANSFER_TIMEOUT (100 s)", "PD_PREFILL_INFLIGHT_TIMEOUT (120 s)"
PROFILE = "The profile profiles/default.toml is not valid. profiles/default.toml:31: must be a number"


def found(facts: Facts, code: str) -> list[Finding]:
    return [p.finding for p in make(facts, 1.0).verdict.findings if p.finding.code == code]


def ended(scene: Any, ago: float, restarts: int = 1, before: float = 0.0, **over: Any) -> Facts:
    """decode-0 came back `ago` seconds ago; its life before began `before` seconds earlier."""
    scene.units["decode-0"] = Unit(
        *("decode-0", "running", True, 200, -9, restarts, AT - ago, AT - ago), **over
    )
    facts: Facts = scene.facts()
    marks = [
        f"{stamp(AT - age)} [keeper] decode-0 started as pid {int(age)}\n" for age in (ago + before, ago)
    ]
    events = TABLE.scan("".join(marks if before else marks[1:]), "decode-0", "decode-0/log.txt", AT)
    return replace(
        facts,
        engines=tuple(
            replace(e, traces=Traces(events=events)) if e.name == "decode-0" else e for e in facts.engines
        ),
    )


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("ago", "restarts", "before", "severity"),
    [
        (50.0, 1, 0.0, WARNING),
        (130.0, 1, 0.0, INFO),
        (4 * 3600.0, 1, 0.0, INFO),
        (2 * 86400.0, 1, 0.0, None),
        (130.0, 2, 600.0, WARNING),  # again within half an hour
        (1900.0, 2, 600.0, INFO),
        (130.0, 2, 7200.0, INFO),  # the end before it was long ago
        (130.0, 4, 60.0, None),  # PD203
        (400.0, 4, 60.0, WARNING),
    ],
)
def test_a_life_that_nobody_asked_for_is_a_warning_and_then_a_note(
    scene: Any, ago: float, restarts: int, before: float, severity: Severity | None
) -> None:
    facts = ended(scene, ago, restarts, before)
    told = found(facts, "PD204")
    assert [f.severity for f in told] == ([] if severity is None else [severity])
    if told:
        assert "ago and is ready" in told[0].summary
        assert ("the last of" in told[0].summary) == (restarts > 1)
    if severity is not WARNING and restarts < 3:
        assert make(facts, 1.0).verdict.status == "healthy"


def test_what_hangs_since_before_the_new_life_keeps_it_a_warning(scene: Any) -> None:
    scene.route("r7", 200.0)
    assert found(ended(scene, 130.0), "PD204")[0].severity is WARNING
    scene.requests.clear()
    scene.route("r8", 100.0)
    assert found(ended(scene, 130.0), "PD204")[0].severity is INFO


def test_a_new_life_that_is_not_ready_is_no_note(scene: Any) -> None:
    scene.docs["decode-0"] |= {"ready": False, "not_ready": ["the model is loading"], "status": "starting"}
    assert found(ended(scene, 130.0), "PD204")[0].severity is WARNING


def test_a_start_by_hand_is_a_note_once_its_peers_are_linked(scene: Any, peers: Any) -> None:
    scene.docs["prefill-0"]["peers"] = [peers("decode-0", since_age_s=125.0)]
    (told,) = found(ended(scene, 130.0, 0, started_by="hand"), "PD204")
    assert told.severity is INFO and "by hand" in told.summary
    scene.docs["decode-0"]["incarnation"] = "00000000000000ff"
    assert found(ended(scene, 130.0, 0, started_by="hand"), "PD204")[0].severity is WARNING


def test_stopped_by_turns_is_not_called_frozen(scene: Any) -> None:
    ranks = (Child(201, "stopped", "rank 0"), Child(202, "stopped", "rank 1"))
    scene.processes["decode-0"] = Process(200, "sleeping", AT - 900, {}, ranks, ran=(201, 202))
    (told,) = found(scene.facts(), "PD202")
    assert "at times" in told.summary and "has not been continued" not in told.summary
    assert told.severity is WARNING and not told.certain and "would not last" in told.remedy
    scene.processes["decode-0"] = Process(200, "sleeping", AT - 900, {}, ranks, ran=(201,))
    (told,) = found(scene.facts(), "PD202")
    assert "has not been continued" in told.summary and told.remedy == "kill -CONT 202"
    assert "pid 202 on local" in told.evidence[0]


def test_a_profile_that_cannot_be_read_is_told_with_its_line(scene: Any) -> None:
    scene.expected = dict.fromkeys(("prefill-0", "decode-0"), Missing(PROFILE))
    (told,) = found(scene.facts(), "PD123")
    assert told.subject == "prefill-0, decode-0" and "profiles/default.toml:31" in told.summary
    assert told.severity is WARNING and "pdctl profile check" in told.remedy
    scene.expected = dict.fromkeys(("prefill-0", "decode-0"), Missing("the bundle does not show it"))
    assert found(scene.facts(), "PD123") == []


@pytest.mark.parametrize(
    ("prefill", "decode", "words"),
    [
        (("transfer", 7.0, 0), ("transfer", 8.0, 0), f"{DECODE} ends it in about 93 s"),
        # Prefill spoke for the last time at some moment of a long computation.
        (("transfer", 7.0, 0), ("transfer", 60.0, 0), f"{DECODE} ends it in at most 93 s"),
        # Bytes have come, and some word with the last of them: a minute ago or now.
        (("transfer", 40.0, 99), ("done", 60.0, 99), f"{PREFILL} ends it in at most 80 s"),
        (("want", 7.0, 0), ("transfer", 60.0, 0), f"{DECODE} ends it in about 40 s"),
        (("transfer", 70.0, 0), ("transfer", 10.0, 0), f"{PREFILL} ends it in about 50 s"),
    ],
)
def test_when_a_deadline_ends_it_is_as_sure_as_the_sides_tell(
    scene: Any,
    legs: Any,
    prefill: tuple[str, float, int],
    decode: tuple[str, float, int],
    words: str,
) -> None:
    for name, stage, (on, age, count) in (
        ("prefill-0", "inflight", prefill),
        ("decode-0", "preallocated", decode),
    ):
        scene.hold(name, legs("r1", stage, age_s=90.0, stage_age_s=age, waiting_on=on, bytes=count))
    scene.route("r1", 90.0)
    (told,) = found(scene.facts(), "PD602")
    assert words in told.evidence[0]
