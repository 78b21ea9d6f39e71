"""Every fault an operator can meet is named as the first finding; its echoes are attached to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pdctl.adapters.picture import Reach
from pdctl.adapters.traces import HostTraces
from pdctl.diagnose.report import document, make
from pdctl.diagnose.rule import Severity
from pdctl.facts.clock import Clock
from pdctl.facts.machine import Room
from pdctl.facts.missing import Missing
from pdctl.facts.ports import TAKEN, Holder, PortState
from pdctl.facts.process import Child, Process
from pdctl.facts.reach import Reached
from pdctl.facts.unit import Unit
from tests.cases.case import cases

AT = 1_700_000_000.0
Scene = Any
Make = Callable[[Scene, Callable[..., Any], Callable[..., Any]], None]


def pinned(scene: Scene, leg: Any, waiting_on: str, stage: str, decode_wait: str) -> None:
    scene.route("r7", 12.0)
    scene.hold("prefill-0", leg("r7", "inflight", stage_age_s=12.0, waiting_on=waiting_on, peer="decode-0"))
    scene.hold("decode-0", leg("r7", stage, stage_age_s=12.0, waiting_on=decode_wait))


def lose_want(scene: Scene, leg: Any, peer: Any) -> None:
    pinned(scene, leg, "want", "preallocated", "transfer")


def lose_early_want(scene: Scene, leg: Any, peer: Any) -> None:
    """Decode has pages for a prompt that prefill does not compute before it is asked for."""
    scene.route("r7", 12.0)
    scene.hold("prefill-0", leg("r7", "waiting", pages=0, stage_age_s=12.0, waiting_on="decode"))
    scene.hold("decode-0", leg("r7", "preallocated", stage_age_s=12.0, waiting_on="transfer"))


def stall(scene: Scene, leg: Any, peer: Any) -> None:
    pinned(scene, leg, "transfer", "transferring", "transfer")


def lose_done(scene: Scene, leg: Any, peer: Any) -> None:
    pinned(scene, leg, "taken", "transferring", "done")


def lose_taken(scene: Scene, leg: Any, peer: Any) -> None:
    pinned(scene, leg, "taken", "running", "slot")
    scene.steps["decode-0"] = 4


def forgotten(scene: Scene, leg: Any, peer: Any) -> None:
    for number in range(3):
        scene.route(f"r{number}", 40.0)


def frozen_decode(scene: Scene, leg: Any, peer: Any) -> None:
    scene.reach["decode-0"] = Reach.TIMED_OUT
    scene.processes["decode-0"] = Process(200, "stopped", AT - 900, {})
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", linked=False, error="heartbeat")]
    scene.route("r7", 12.0)
    scene.hold("prefill-0", leg("r7", "inflight", stage_age_s=12.0, waiting_on="transfer", peer="decode-0"))


def frozen_rank(scene: Scene, leg: Any, peer: Any) -> None:
    children = (Child(201, "stopped", "rank 0"),)
    scene.processes["decode-0"] = Process(200, "sleeping", AT - 900, {}, children)
    scene.docs["decode-0"]["snapshot_age_s"] = 20.0


def wedged(scene: Scene, leg: Any, peer: Any) -> None:
    scene.hold("decode-0", leg("r7", "running", stage_age_s=40.0, age_s=40.0))
    scene.docs["decode-0"]["progress"]["loop_age_s"] = 35.0
    scene.route("r7", 40.0, stage="streaming")


def killed(scene: Scene, leg: Any, peer: Any) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.processes["decode-0"] = Missing("no process runs")
    scene.units["decode-0"] = Unit("decode-0", "failed", True, None, -9, 5, AT - 20)
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", linked=False, error="closed")]


def crash_loop(scene: Scene, leg: Any, peer: Any) -> None:
    scene.reach["prefill-0"] = Reach.REFUSED
    scene.units["prefill-0"] = Unit("prefill-0", "backoff", True, None, 74, 4, AT - 2)
    scene.docs["decode-0"]["peers"] = [peer("prefill-0", linked=False, error="refused")]


def legacy_restart(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["decode-0"] |= {"started_at": AT - 30, "incarnation": "00000000000000ff"}
    scene.docs["prefill-0"]["legacy_bootstrap"] = True
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", stale=True, last_transfer_age_s=60.0)]
    scene.route("r7", 12.0)
    scene.hold("prefill-0", leg("r7", "inflight", stage_age_s=12.0, waiting_on="want", peer="decode-0"))
    scene.hold("decode-0", leg("r7", "preallocated", stage_age_s=12.0, waiting_on="transfer"))


def unlinked(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["decode-0"]["peers"] = [peer("prefill-0", linked=False, error="connect timed out")]
    scene.docs["prefill-0"]["peers"] = []


def disagree(scene: Scene, leg: Any, peer: Any) -> None:
    """Decode was started anew to be so: the life that prefill knows of it is not the cause."""
    scene.docs["decode-0"]["fingerprint"]["dtype"] = "bfloat16"
    scene.docs["decode-0"] |= {"started_at": AT - 94, "incarnation": "00000000000000ff"}
    unlinked(scene, leg, peer)
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", linked=False, error="the connection was closed")]


def out_of_order(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["prefill-0"]["timeouts"]["inflight"]["value"] = 60.0


def environment(scene: Scene, leg: Any, peer: Any) -> None:
    scene.expected["prefill-0"] = {"PD_PREFILL_INFLIGHT_TIMEOUT": "60"}
    scene.processes["prefill-0"] = Process(1, "sleeping", AT, {"PD_PREFILL_INFLIGHT_TIMEOUT": "120"})


def changed_live(scene: Scene, leg: Any, peer: Any) -> None:
    scene.expected["prefill-0"] = {"PD_PREFILL_INFLIGHT_TIMEOUT": "120"}
    scene.docs["prefill-0"]["timeouts"]["inflight"] |= {"value": 110.0, "source": "admin"}
    scene.processes["prefill-0"] = Process(1, "sleeping", AT, {"PD_PREFILL_INFLIGHT_TIMEOUT": "120"})


def upside_down_live(scene: Scene, leg: Any, peer: Any) -> None:
    changed_live(scene, leg, peer)
    scene.docs["prefill-0"]["timeouts"]["inflight"]["value"] = 60.0


def left_held(scene: Scene, leg: Any, peer: Any) -> None:
    scene.router |= {"admission": "held", "held": 2, "hold_age_s": 130.0}
    scene.route("r1", 100.0, stage="held")


def left_drained(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["prefill-0"] |= {"status": "drained", "ready": False, "not_ready": ["draining"]}


def quarantine(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["prefill-0"]["pages"] |= {"free": 60, "quarantined": 40}


def armed(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["prefill-0"]["faults"] = {
        "enabled": True,
        "armed": [{"name": "stall-transfer", "count": 0, "value": 0.0, "hits": 1}],
    }
    stall(scene, leg, peer)


def steps_stopped(scene: Scene, leg: Any, peer: Any) -> None:
    wedged(scene, leg, peer)
    fault = {"name": "stop-steps", "count": 0, "value": 0.0, "hits": 0}
    scene.docs["decode-0"]["faults"] = {"enabled": True, "armed": [fault]}


def not_granted(scene: Scene, leg: Any, peer: Any) -> None:
    scene.route("r7", 20.0)
    scene.hold("prefill-0", leg("r7", "inflight", stage_age_s=20.0, waiting_on="want", peer="decode-0"))
    waiting = leg("r7", "waiting", stage_age_s=20.0, waiting_on="pages", pages=0)
    scene.hold("decode-0", waiting)


def unreachable(scene: Scene, leg: Any, peer: Any) -> None:
    scene.reach["decode-0"] = Reach.UNREACHABLE
    scene.processes["decode-0"] = Missing("it runs on another host")
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", linked=False)]


def unsupervised(scene: Scene, leg: Any, peer: Any) -> None:
    scene.units["decode-0"] = Unit("decode-0", "orphaned", True, 200, None, 0, AT - 500)


def came_back(scene: Scene, leg: Any, peer: Any) -> None:
    scene.units["decode-0"] = Unit("decode-0", "running", True, 200, -9, 1, AT - 50, AT - 50)
    scene.docs["decode-0"] |= {"started_at": AT - 50}


def ends_now(scene: Scene, leg: Any, peer: Any) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "backoff", True, None, -9, 0, AT - 1)
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", linked=False, error="closed")]


def port_taken(scene: Scene, leg: Any, peer: Any) -> None:
    scene.reach["decode-0"] = Reach.BAD_ANSWER
    scene.units["decode-0"] = Unit("decode-0", "backoff", True, None, 73, 4, AT - 2)
    scene.processes["decode-0"] = Missing("no process runs")
    port = int(scene.docs["decode-0"]["address"].rpartition(":")[2])
    nginx = Holder("0.0.0.0", "www-data", 4711, (1,), "nginx: master", "nginx.service")
    scene.hosts = [replace(scene.hosts[0], ports=(PortState("127.0.0.1", port, TAKEN, (nginx,)),))]
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", linked=False, error="closed")]


def peers_apart(scene: Scene, leg: Any, peer: Any) -> None:
    way = scene.docs["prefill-0"]["bootstrap"]
    scene.hosts = [replace(scene.hosts[0], reach={way: Reached("no answer", 1.5)})]
    unlinked(scene, leg, peer)


def clock(scene: Scene, leg: Any, peer: Any) -> None:
    good = [replace(scene.hosts[0], name=name) for name in ("h1", "h2")]
    scene.hosts = [*good, replace(scene.hosts[0], name="h3", clock=Clock(-70.0, 0.2))]


def disk(scene: Scene, leg: Any, peer: Any) -> None:
    scene.hosts = [replace(scene.hosts[0], disk=Room("/srv", 1 << 40, 0, 12345))]


def unknown_to_router(scene: Scene, leg: Any, peer: Any) -> None:
    del scene.router["engines"][1]


def by_hand(scene: Scene, leg: Any, peer: Any) -> None:
    scene.units["decode-0"] = Unit("decode-0", "running", True, 200, 0, 0, AT - 8, AT - 8, "", "hand")
    scene.docs["decode-0"] |= {"started_at": AT - 8}
    scene.docs["prefill-0"]["peers"] = [peer("decode-0", since_age_s=5.0)]


def profile_unread(scene: Scene, leg: Any, peer: Any) -> None:
    scene.expected["decode-0"] = Missing("profiles/default.toml:6: must be a number of seconds.")


CASES: dict[Make, tuple[str, str, set[str]]] = {
    lose_want: ("PD602", "Want was lost", set()),
    lose_early_want: ("PD602", "Want was lost", set()),
    stall: ("PD602", "stalled", set()),
    lose_done: ("PD602", "Done was lost", set()),
    lose_taken: ("PD602", "Taken was lost", set()),
    forgotten: ("PD601", "3 requests that no engine knows", set()),
    frozen_decode: ("PD202", "decode-0 is frozen", {"PD602", "PD502"}),
    frozen_rank: ("PD202", "a rank of it was stopped", set()),
    wedged: ("PD202", "makes no progress", set()),
    killed: ("PD201", "SIGKILL", {"PD502"}),
    crash_loop: ("PD203", "model is missing", {"PD502"}),
    legacy_restart: ("PD501", "one was restarted without the other", {"PD602"}),
    unknown_to_router: ("PD503", "never told of decode-0", set()),
    unlinked: ("PD502", "not linked", set()),
    disagree: ("PD106", "disagree on dtype", {"PD502", "PD501"}),
    out_of_order: ("PD105", "PD_DECODE_TRANSFER_TIMEOUT=100 must be below", set()),
    upside_down_live: ("PD105", "PD_DECODE_TRANSFER_TIMEOUT=100 must be below", {"PD101"}),
    environment: ("PD101", "other values than its profile", set()),
    changed_live: ("PD101", "other values than its profile", set()),
    left_held: ("PD604", "holds admissions", set()),
    left_drained: ("PD604", "is drained", set()),
    quarantine: ("PD605", "40 of 100 pages", set()),
    armed: ("PD606", "stall-transfer is armed", {"PD602"}),
    steps_stopped: ("PD606", "stop-steps is armed", {"PD202"}),
    not_granted: ("PD607", "pages that are free", set()),
    unreachable: ("PD301", "cannot be reached", {"PD502"}),
    unsupervised: ("PD205", "without a supervisor", set()),
    ends_now: ("PD204", "started again in a moment", {"PD502"}),
    came_back: ("PD204", "SIGKILL", set()),
    by_hand: ("PD204", "decode-0 was started by hand 8.0 s ago, without prefill-0", set()),
    port_taken: ("PD206", "held by pid 4711 of www-data (nginx: master, nginx.service)", {"PD203", "PD502"}),
    peers_apart: ("PD302", "does not reach prefill-0", {"PD502"}),
    clock: ("PD801", "The clock of h3 is -70.0 s from this machine", set()),
    disk: ("PD701", "/srv on local is full", set()),
    profile_unread: (
        "PD123",
        "decode-0 should be started with cannot be told: profiles/default.toml:6",
        set(),
    ),
}


@pytest.mark.parametrize("make_scene", CASES, ids=lambda f: f.__name__)
def test_first_finding_names_the_fault(make_scene: Make, scene: Scene, legs: Any, peers: Any) -> None:
    code, words, echoes = CASES[make_scene]
    make_scene(scene, legs, peers)
    report = make(scene.facts(), 1.0)
    first = report.verdict.findings[0].finding
    assert first.code == code, [p.finding.summary for p in report.verdict.findings]
    assert words in first.summary
    attached = {p.finding.code for p in report.verdict.findings if p.caused_by == 0}
    assert echoes <= attached
    assert report.exit(type(first.severity).WARNING) == 3
    assert first.evidence and (first.remedy or first.hypotheses)


def test_an_order_that_was_inverted_live_is_put_back_by_a_deploy(scene: Scene, legs: Any, peers: Any) -> None:
    upside_down_live(scene, legs, peers)
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert first.remedy == "pdctl deploy"
    assert first.evidence[-1] == (
        "PD_PREFILL_INFLIGHT_TIMEOUT of prefill-0 was set to 60 s by an admin call since the start"
    )


def test_every_rule_has_a_scene_or_a_case_in_which_it_is_told() -> None:
    from pdctl.diagnose.rules import CATALOGUE

    told = {code for code, _, _ in CASES.values()} | {
        "PD603",
        "PD608",
        "PD901",
    }  # test_rules_quiet, test_recent, test_suppress
    # test_cases holds them to their leads; what is told beside a lead is looked for only where it is needed.
    told |= {case.leads[0] for case in cases() if len(case.leads) == 1}
    left = {rule.code for rule in CATALOGUE} - told
    for case in cases():
        if not left:
            break
        left -= {p.finding.code for p in case.judge().verdict.findings}
    assert left == set()


def test_a_young_hold_that_nobodys_run_will_end_is_told(scene: Scene) -> None:
    scene.router |= {"admission": "held", "held": 1, "hold_age_s": 6.0}
    report = make(scene.facts(), 1.0)
    first = report.verdict.findings[0].finding
    assert (first.code, first.severity, first.remedy) == ("PD604", Severity.WARNING, "pdctl resume")
    assert any("no run will end the hold" in line for line in first.evidence)
    scene.run = Missing("the lock's host did not answer")
    assert make(scene.facts(), 1.0).verdict.findings[0].finding.severity is Severity.INFO


def test_a_host_that_is_gone_is_one_finding(scene: Scene) -> None:
    """Both engines of the scene are on one host; the router too."""
    for name in ("prefill-0", "decode-0", "router"):
        scene.reach[name] = Reach.UNREACHABLE
        scene.units[name] = Missing("gpu1 cannot be reached over SSH")  # type: ignore[assignment]
    report = make(scene.facts(), 1.0)
    (found,) = [p.finding for p in report.verdict.findings if p.finding.code == "PD301"]
    assert found.summary == "Host local cannot be reached, and with it prefill-0, decode-0 and router."
    assert "gpu1 cannot be reached over SSH" in " ".join(found.evidence)
    assert found.hypotheses


@pytest.mark.parametrize("prefill", [Reach.UNREACHABLE, Reach.TIMED_OUT, Reach.OK])
def test_a_host_that_was_asked_and_is_silent_is_gone_with_its_engines(
    scene: Scene, hosts: Any, prefill: Reach
) -> None:
    """One engine is enough; one whose connection broke off half way is silent, and not frozen."""
    scene.reach = {"prefill-0": prefill, "decode-0": Reach.UNREACHABLE}
    gone = Missing("host h3 did not answer within 5 s")
    scene.hosts = [*scene.hosts, hosts("h3", clock=gone, disk=gone, ports=gone, reach=gone)]
    facts = scene.facts()
    away = [e.name for e in facts.engines if e.reach is not Reach.OK]
    engines = [
        replace(e, member=replace(e.member, host="h3", unit=gone, process=gone)) if e.name in away else e
        for e in facts.engines
    ]
    placed = make(replace(facts, engines=tuple(engines)), 1.0).verdict.findings
    assert placed[0].finding.code == "PD301"
    assert placed[0].finding.summary == f"Host h3 cannot be reached, and with it {' and '.join(away)}."
    assert all(
        p.caused_by == 0 for p in placed if p.finding.code in ("PD202", "PD301") and p is not placed[0]
    )


def test_a_co_restart_that_stopped_half_way_is_continued(scene: Scene) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "stopped", False, None, 0, 0, AT - 20)
    scene.router |= {"admission": "held", "held": 1, "hold_age_s": 25.0}
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert (first.code, first.remedy) == ("PD201", "pdctl restart --co a")


def test_a_hold_says_the_limit_that_was_given_with_it(scene: Scene) -> None:
    scene.router |= {"admission": "held", "held": 1, "hold_age_s": 25.0, "hold_limit_s": 40.0}
    found = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert (found.code, found.severity) == ("PD604", Severity.WARNING), "more than half of it is over"
    assert "a held request fails after 40 s" in found.evidence


def test_a_cordoned_cell_that_was_left_half_way_is_continued(scene: Scene) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "stopped", False, None, 0, 0, AT - 20)
    scene.router["engines"][1] |= {
        "ready": False,
        "cordoned": True,
        "last_ok_age_s": 20.0,
        "error": "refused",
    }
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert (first.code, first.remedy) == ("PD201", "pdctl restart --co a")


def test_an_engine_that_answers_without_a_unit_is_not_down(scene: Scene) -> None:
    scene.units["decode-0"] = Unit("decode-0", "absent", True, None, None, 0, None, reason="not installed")
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert first.code == "PD205" and "decode-0 answers" in first.summary


def test_a_fleet_that_was_brought_down_is_started_by_a_deploy(scene: Scene) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "stopped", False, None, 0, 0, AT - 20)
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert (first.code, first.remedy) == ("PD201", "pdctl deploy")


@pytest.mark.parametrize(("state", "restarts", "code"), [("failed", 0, "PD201"), ("starting", 3, "PD203")])
def test_a_strangers_silent_port_is_not_a_frozen_engine(
    scene: Scene, state: str, restarts: int, code: str
) -> None:
    scene.reach["decode-0"] = Reach.TIMED_OUT
    scene.units["decode-0"] = Unit("decode-0", state, True, None, 73, restarts, AT - 5, AT - 5)
    report = make(scene.facts(), 1.0)
    first = report.verdict.findings[0].finding
    assert first.code == code and "a port was in use" in first.summary
    assert "PD202" not in {p.finding.code for p in report.verdict.findings}


def test_a_life_that_began_while_the_host_was_looked_at_is_no_stranger(
    scene: Scene, legs: Any, peers: Any
) -> None:
    port_taken(scene, legs, peers)
    port = scene.hosts[0].ports[0]  # type: ignore[index]
    for parents, taken in (((90, 1), False), ((91, 1), True)):
        born = Holder("127.0.0.1", "root", 4711, parents, "python -m engine serve")
        scene.hosts = [replace(scene.hosts[0], ports=(replace(port, holders=(born,)),))]
        scene.units["decode-0"] = replace(scene.units["decode-0"], keeper=90)
        codes = {p.finding.code for p in make(scene.facts(), 1.0).verdict.findings}
        assert ("PD206" in codes) is taken


def test_without_process_facts_silence_is_a_hypothesis(scene: Scene) -> None:
    scene.reach["decode-0"] = Reach.TIMED_OUT
    scene.processes["decode-0"] = Missing("it runs on another host")
    verdict = make(scene.facts(), 1.0).verdict
    assert verdict.status == "hypotheses"
    assert len(verdict.hypotheses) >= 2
    assert all(h.test for h in verdict.hypotheses)


def test_ledger_names_holder_and_reason(scene: Scene, legs: Any, peers: Any) -> None:
    lose_want(scene, legs, peers)
    scene.route("r8", 30.0)
    doc = document(make(scene.facts(), 1.0))
    by_id = {e["id"]: e for e in doc["ledger"]}
    assert by_id["r7"]["verdict"] == "stuck" and by_id["r7"]["holder"] == "prefill-0"
    assert by_id["r7"]["lost"] == "want" and by_id["r7"]["waiting_on"] == "want"
    assert by_id["r8"]["verdict"] == "forgotten" and by_id["r8"]["holder"] == "router"


def test_a_request_an_unreachable_engine_may_hold_is_not_forgotten(scene: Scene, legs: Any) -> None:
    scene.reach["decode-0"] = Reach.REFUSED
    scene.route("r7", 40.0)
    entry = make(scene.facts(), 1.0).ledger[0]
    assert entry.verdict == "unknown" and entry.holder == "decode-0"


def test_a_hand_restart_says_what_the_survivor_sees(scene: Scene, legs: Any, peers: Any) -> None:
    by_hand(scene, legs, peers)
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert "prefill-0 linked to its new life 5.0 s ago" in first.evidence
    assert "pdctl did not start it" in first.evidence[0] and first.remedy == "pdctl logs decode-0"


def test_a_hand_restart_that_the_survivor_did_not_see_asks_for_a_co_restart(
    scene: Scene, legs: Any, peers: Any
) -> None:
    by_hand(scene, legs, peers)
    scene.docs["decode-0"]["incarnation"] = "00000000000000ff"
    placed = make(scene.facts(), 1.0).verdict.findings
    hand = next(p.finding for p in placed if p.finding.code == "PD204")
    assert hand.remedy == "pdctl restart --co a"
    assert "prefill-0 is not linked to its new life" in hand.evidence


@pytest.mark.parametrize("started_by", ["pdctl", "supervisor", ""])
def test_what_pdctl_started_is_no_finding(scene: Scene, legs: Any, peers: Any, started_by: str) -> None:
    by_hand(scene, legs, peers)
    scene.units["decode-0"] = replace(scene.units["decode-0"], started_by=started_by)
    assert make(scene.facts(), 1.0).verdict.status == "healthy"


def test_both_sides_by_hand_are_told_and_neither_is_called_alone(scene: Scene, legs: Any, peers: Any) -> None:
    by_hand(scene, legs, peers)
    scene.units["prefill-0"] = Unit("prefill-0", "running", True, 100, 0, 0, AT - 8.5, AT - 8.5, "", "hand")
    placed = make(scene.facts(), 1.0).verdict.findings
    assert [p.finding.subject for p in placed] == ["prefill-0", "decode-0"]
    assert all("without" not in p.finding.summary for p in placed)


def test_a_refused_peer_that_answers_is_a_wrong_address_and_certain(
    scene: Scene, legs: Any, peers: Any
) -> None:
    peers_apart(scene, legs, peers)
    way = scene.docs["prefill-0"]["bootstrap"]
    scene.hosts = [replace(scene.hosts[0], reach={way: Reached("refused", 0.0)})]
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert (first.code, first.certain, first.remedy) == ("PD302", True, "pdctl check")
    scene.reach["prefill-0"] = Reach.REFUSED
    codes = {p.finding.code for p in make(scene.facts(), 1.0).verdict.findings}
    assert "PD302" not in codes, "an engine that is down refuses everybody"


@pytest.mark.parametrize("what", ["load", "silence"])
def test_an_engine_that_is_late_on_an_overloaded_host_is_not_called_frozen(
    scene: Scene, hosts: Any, what: str
) -> None:
    """The answer is what to ask next; without the load it is certain."""
    scene.reach["decode-0"] = Reach.TIMED_OUT
    if what == "load":
        scene.hosts = [hosts(traces=HostTraces(numbers={"load1": 20.0, "cores": 2.0}))]
    else:
        scene.hosts = [hosts(clock=Missing("host local did not answer within 5 s"))]
    first = make(scene.facts(), 1.0).verdict.findings[0].finding
    assert (first.code, first.certain, first.remedy) == ("PD202", False, "")
    assert any("overloaded" in h.text for h in first.hypotheses)
    scene.hosts = [hosts(traces=HostTraces(numbers={"load1": 2.0, "cores": 2.0}))]
    assert make(scene.facts(), 1.0).verdict.findings[0].finding.certain
