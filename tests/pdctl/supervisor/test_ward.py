"""Every path of the policy, on a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdctl.adapters.picture import Queue, Reach, RouterEngine
from pdctl.supervisor.observation import HostLook, RouterLook
from pdctl.supervisor.policy import Act
from pdctl.supervisor.states import State
from tests.pdctl.supervisor.bed import EVERY, SILENT, Bed, finding, peer, policy

WEDGE = finding("PD501")


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    made = Bed(tmp_path)
    made.quiet(seconds=30)
    assert made.state("a") is made.state("b") is State.SERVING
    return made


def test_a_wedge_is_confirmed_look_after_look_and_then_the_cell_is_co_restarted_with_proof(bed: Bed) -> None:
    assert not bed.look(WEDGE)
    assert bed.state() is State.SUSPECT and not bed.store.recent()
    assert not bed.look(WEDGE)
    ((case, decision),) = bed.look(WEDGE)
    assert (decision.act, decision.target, decision.proof) == (Act.CO_RESTART, "a", True)
    (incident,) = bed.store.recent()
    assert (incident.cell, incident.codes, incident.state) == ("a", ("PD501",), "ill")
    bed.act(case, decision)
    assert bed.state() is State.SETTLING
    bed.quiet(seconds=70)
    assert bed.state() is State.SERVING
    (incident,) = bed.store.recent()
    assert not incident.open and [m.what for m in incident.timeline][-1] == "closed"
    assert bed.told() == ["opened", "action", "closed"]
    assert [a.outcome for a in bed.store.actions(incident.id)] == ["done"]


def test_a_finding_that_goes_away_by_itself_is_no_incident(bed: Bed) -> None:
    bed.look(WEDGE)
    bed.quiet(seconds=60)
    assert bed.state() is State.SERVING and not bed.store.recent() and not bed.told()


def test_what_is_judged_seldom_is_confirmed_by_how_often_it_was(bed: Bed) -> None:
    """A hundred ill cells are judged minutes apart: of the time between two, half a minute counts."""
    slow = finding("PD602", requests=("r1",))
    for _ in range(2):
        assert not bed.look(slow, after=200)
    assert bed.state() is State.SUSPECT, "two are not enough for what is to stand for a minute"
    ((_, decision),) = bed.look(slow, after=200)
    assert decision.act is Act.ABORT


def test_facts_from_before_an_act_ended_do_not_make_it_well(bed: Bed) -> None:
    case, decision = bed.until(WEDGE)
    collected = bed.clock.now()
    bed.act(case, decision)
    bed.ward.judged("a", [], collected)
    assert case.machine.well_since is None, "its calm has not begun"
    bed.ward.judged("a", [], bed.clock.now())
    assert case.machine.well_since == bed.clock.now()


def test_facts_from_before_somebody_held_the_fleet_say_nothing(bed: Bed) -> None:
    collected = bed.clock.now()
    bed.look(WEDGE, held="ann@desk: pdctl deploy")
    bed.look(after=5)
    bed.ward.judged("a", [WEDGE], collected)
    assert not bed.ward.cases["a"].standing


def test_a_clock_that_is_set_fires_nothing(bed: Bed) -> None:
    bed.look(WEDGE)
    bed.clock.jump(86400)
    assert not bed.look(WEDGE)
    bed.clock.jump(-7 * 86400)
    ((case, decision),) = bed.look(WEDGE)
    bed.act(case, decision, "failed")
    bed.clock.jump(86400)
    bed.quiet(WEDGE, seconds=90)


def test_a_co_restart_that_does_not_help_is_tried_again_after_its_backoff_and_then_a_person_is_needed(
    bed: Bed,
) -> None:
    bed.act(*bed.until(WEDGE))
    first = bed.clock.now()
    case, decision = bed.until(WEDGE)
    assert bed.clock.now() - first >= 120 - 20
    bed.act(case, decision)
    bed.quiet(WEDGE, seconds=7200)
    assert bed.state() is State.PERSON
    assert bed.told()[-1] == "person" and bed.ward.urgent == [bed.ward.cases["a"]]
    assert "was done 2 times and did not make it well" in bed.store.recent()[0].timeline[-1].text


def test_another_fault_in_an_open_incident_is_told_and_is_what_it_is_about(bed: Bed) -> None:
    bed.act(*bed.until(WEDGE))
    bed.quiet(seconds=40)  # well, and not yet calm
    down = finding("PD201", subject="decode-a")
    bed.until(down)
    (incident,) = bed.store.recent()
    assert incident.codes == ("PD201", "PD501") and incident.summary == "PD201 it is"
    assert bed.told() == ["opened", "action", "opened"]


def test_no_more_than_so_many_within_an_hour(tmp_path: Path) -> None:
    often = {"co-restart": {"per_hour": 1, "tries": 9, "backoff": 1.0}}
    bed = Bed(tmp_path, policy(actions=often))
    bed.act(*bed.until(WEDGE))
    began = bed.clock.now()
    bed.act(*bed.until(WEDGE, seconds=4000))
    assert bed.clock.now() - began >= 3600 - 20


def test_backoff_doubles_up_to_its_limit() -> None:
    limits = policy().actions["co-restart"]
    assert [limits.pause(n) for n in range(7)] == [0, 120, 240, 480, 960, 1800, 1800]


def test_quiet_hours_hold_back_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    night = {"from": "22:00", "to": "09:00", "zone": "UTC", "actions": ["co-restart"]}
    bed = Bed(tmp_path, policy(quiet={"night": night}))
    bed.quiet(WEDGE, seconds=3500)
    assert "quiet hours 'night'" in bed.store.recent()[0].timeline[-1].text
    bed.until(WEDGE, seconds=200)
    other = Bed(tmp_path / "other", policy(quiet={"night": night}))
    stuck = finding("PD601", subject="router", requests=("r1",))
    assert other.until(stuck)[1].act is Act.ABORT


@pytest.mark.parametrize(
    ("days", "wall", "quiet"),
    [
        (["fri"], 1_800_000_000 + 15 * 3600, True),  # Friday 23:00
        (["fri"], 1_800_000_000 + 20 * 3600, True),  # the night goes on into Saturday, 04:00
        (["sat"], 1_800_000_000 + 20 * 3600, False),
        ([], 1_800_000_000, False),  # 08:00
    ],
)
def test_quiet_hours_over_midnight(days: list[str], wall: float, quiet: bool) -> None:
    night = policy(quiet={"n": {"from": "22:00", "to": "06:00", "days": days}}).quiet["n"]
    assert night.covers(wall) is quiet


def test_a_dry_run_says_once_what_it_would_do_and_the_cell_stays_ill(tmp_path: Path) -> None:
    bed = Bed(tmp_path, policy(supervisor={"mode": "dry-run"}))
    case, decision = bed.until(WEDGE)
    bed.ward.rehearsed(case, decision)
    bed.quiet(WEDGE, seconds=7200)  # nothing failed, so nobody gives up either
    assert [(a.action, a.outcome) for a in bed.store.actions()] == [("co-restart", "dry-run")]
    assert bed.state() is State.ILL and bed.store.recent()[0].state == State.ILL
    assert bed.told() == ["opened", "action"]
    bed.quiet(seconds=600)
    bed.ward.rehearsed(*bed.until(WEDGE))  # another incident, said again
    assert bed.told() == ["closed", "opened", "action"]


def test_what_a_dry_run_said_is_done_once_the_policy_lets_it(tmp_path: Path) -> None:
    bed = Bed(tmp_path, policy(supervisor={"mode": "dry-run"}))
    bed.ward.rehearsed(*bed.until(WEDGE))
    bed.ward.reform(policy())
    assert bed.look(WEDGE)[0][1].act is Act.CO_RESTART


def test_who_only_watches_tells_a_person(tmp_path: Path) -> None:
    bed = Bed(tmp_path, policy(supervisor={"mode": "watch"}))
    bed.quiet(WEDGE, seconds=60)
    assert bed.state() is State.PERSON and bed.told() == ["opened", "person"]


def test_the_last_healthy_cell_is_not_touched_while_it_serves_in_part(tmp_path: Path) -> None:
    bed = Bed(tmp_path, cells=("a",))
    done = 0
    while bed.state() is not State.PERSON:
        done += 1
        assert not bed.look(WEDGE, prefill_a={"peers": (peer("x", ok=done),)})
        assert done < 100
    assert "no other cell is healthy" in bed.store.recent()[0].timeline[-1].text


def test_a_cell_that_serves_in_part_is_restarted_where_another_is_healthy(bed: Bed) -> None:
    done = 0
    while True:
        done += 1
        if due := bed.look(WEDGE, prefill_a={"peers": (peer("x", ok=done),)}):
            break
        assert done < 100
    assert due[0][1].act is Act.CO_RESTART


def test_while_somebody_holds_the_fleet_nothing_is_judged_and_confirmation_begins_anew(bed: Bed) -> None:
    bed.look(WEDGE)
    bed.look(WEDGE)
    bed.quiet(WEDGE, seconds=60, held="ann: deploy")
    assert not bed.look(WEDGE) and not bed.look(WEDGE)
    assert bed.look(WEDGE)


def test_a_supervisor_that_is_cut_off_judges_nobody(bed: Bed) -> None:
    far = (HostLook("far", False, 0, 0, detail="no route"),)
    silent = {f"{side}_{cell}": SILENT for side in ("prefill", "decode") for cell in "ab"}
    front = RouterLook("router", "local", reach=Reach.TIMED_OUT)
    for _ in range(60):
        assert not bed.look(WEDGE, finding("PD201"), hosts=far, router=front, **silent)
    assert bed.state("a") is bed.state("b") is State.BLIND
    bed.quiet(seconds=90)
    assert bed.state() is State.SERVING and not bed.store.recent(), "nothing was wrong"


def test_a_host_that_cannot_be_reached_blinds_its_cell_alone(bed: Bed) -> None:
    hosts = (HostLook("local", False, 0, 0, detail="no route"), HostLook("other", True, 0, 0))
    bed.quiet(WEDGE, seconds=120, hosts=hosts, prefill_a=SILENT, decode_a=SILENT)
    assert (bed.state("a"), bed.state("b")) == (State.BLIND, State.SERVING)


APART = finding("PD502")


def fall(bed: Bed) -> None:
    """Ill for longer than a late answer, for shorter than the policy waits, and well again."""
    bed.quiet(APART, seconds=15)
    bed.quiet(seconds=5)


def test_while_a_host_cannot_be_asked_nothing_is_restarted_that_stands_there(bed: Bed) -> None:
    """Its engines answer over HTTP: the way for orders is lost, and half an order is worse than none."""
    hosts = (HostLook("local", False, 0, 0, detail="no login"),)
    bed.quiet(WEDGE, seconds=600, hosts=hosts)
    assert bed.state() is State.ILL and "no login" in bed.store.recent()[0].timeline[-1].text
    assert bed.until(WEDGE)


def test_ill_and_well_again_and_again_is_flapping_and_nothing_is_done(bed: Bed) -> None:
    for _ in range(4):
        assert bed.state() is State.SERVING
        fall(bed)
    assert bed.state() is State.FLAPPING
    assert bed.told() == ["opened", "person"]
    bed.quiet(APART, seconds=30)
    bed.quiet(seconds=1850)
    assert bed.state() is State.SERVING


def test_answers_that_come_late_now_and_then_are_no_flapping(bed: Bed) -> None:
    for _ in range(20):
        bed.look(APART)
        bed.look(APART)
        bed.look()
    assert bed.state() is State.SERVING and not bed.told()


def test_flapping_that_stays_ill_needs_a_person(bed: Bed) -> None:
    for _ in range(4):
        fall(bed)
    bed.quiet(APART, seconds=120)
    assert bed.state() is State.PERSON


def test_after_an_act_a_cell_is_left_to_itself_for_a_while(bed: Bed) -> None:
    bed.act(*bed.until(WEDGE))
    bed.quiet(WEDGE, seconds=25)
    assert bed.state() is State.SETTLING
    bed.quiet(seconds=90)
    assert bed.state() is State.SERVING, "what a start looks like is no illness"


def test_a_person_who_resumes_gives_it_new_tries(bed: Bed) -> None:
    bed.act(*bed.until(WEDGE))
    bed.act(*bed.until(WEDGE))
    bed.quiet(WEDGE, seconds=60)
    assert bed.state() is State.PERSON
    bed.ward.attended()
    assert bed.until(WEDGE, seconds=4000)[1].act is Act.CO_RESTART


def test_a_successor_goes_on_with_the_incident_its_tries_and_its_resignation(bed: Bed) -> None:
    bed.act(*bed.until(WEDGE))
    case, decision = bed.until(WEDGE)
    bed.ward.began(case, decision)  # and dies
    bed.born()
    assert bed.store.actions()[0].outcome == "cut-off"
    bed.quiet(WEDGE, seconds=600)
    assert bed.state() is State.PERSON and len(bed.store.recent()) == 1
    bed.born()
    assert bed.state() is State.PERSON
    bed.quiet(WEDGE, seconds=600)


def test_a_successor_touches_nothing_of_a_fleet_that_is_well(bed: Bed) -> None:
    bed.born()
    bed.quiet(seconds=600)
    assert bed.state() is State.SERVING and not bed.store.actions() and not bed.store.recent()


def test_what_was_refused_is_no_try_and_is_not_asked_at_every_look(bed: Bed) -> None:
    for _ in range(5):
        bed.act(*bed.until(WEDGE), outcome="refused", seconds=1.0)
        refused = bed.clock.now()
        bed.until(WEDGE)
        assert bed.clock.now() - refused >= 30
    assert bed.state() is State.ILL


def test_pinned_requests_are_aborted_one_by_one_and_then_the_cell_is_co_restarted(bed: Bed) -> None:
    pinned = finding("PD602", requests=("r1", "r2"))
    case, decision = bed.until(pinned)
    assert (decision.act, decision.request, decision.proof) == (Act.ABORT, "r1", False)
    acts = []
    for _ in range(12):
        bed.act(case, decision, seconds=1.0)
        case, decision = bed.until(pinned, seconds=4000)
        acts.append(decision.act)
        if decision.act is Act.CO_RESTART:
            break
    assert acts[-1] is Act.CO_RESTART and acts.count(Act.ABORT) >= 2


def test_what_is_not_certain_is_acted_on_only_with_proof(bed: Bed) -> None:
    bed.quiet(finding("PD202", subject="decode-a", certain=False), seconds=200)
    assert bed.state() is State.PERSON
    assert bed.until(finding("PD510", cell="b", certain=False))[1].proof


UNLINKED: dict[str, Any] = {"ready": False, "not_ready": ("no prefill is linked",), "peers": ()}


@pytest.fixture
def linkable(tmp_path: Path) -> Bed:
    made = Bed(tmp_path, relinks=frozenset({"a"}))
    made.quiet(seconds=30)
    return made


def test_an_edge_whose_ends_are_well_is_linked_anew_before_anything_else(linkable: Bed) -> None:
    case, decision = linkable.until(APART, decode_a=UNLINKED)
    assert (decision.act, decision.target, decision.proof) == (Act.RELINK, "prefill-a -> decode-a", False)
    linkable.act(case, decision)
    linkable.quiet(seconds=90)
    assert linkable.state() is State.SERVING and len(linkable.store.actions()) == 1


def test_what_a_new_link_did_not_mend_is_co_restarted_when_that_is_due(linkable: Bed) -> None:
    """A try that failed has changed nothing, so what was confirmed stays confirmed."""
    case, decision = linkable.until(APART, decode_a=UNLINKED)
    began = linkable.clock.now()
    linkable.act(case, decision, "failed", seconds=20.0)
    assert linkable.until(APART, decode_a=UNLINKED)[1].act is Act.CO_RESTART
    assert linkable.clock.now() - began <= 45 + 2 * EVERY, "after 90 s in all"


@pytest.mark.parametrize(
    "decode",
    [
        SILENT,
        UNLINKED | {"status": "draining"},
        UNLINKED | {"snapshot_age": 9.0},
    ],
    ids=["silent", "leaving", "publishes nothing"],
)
def test_an_edge_with_an_end_that_is_not_well_is_not_linked_anew(
    linkable: Bed, decode: dict[str, Any]
) -> None:
    assert linkable.until(APART, decode_a=decode)[1].act is Act.CO_RESTART


def test_what_keeps_a_dead_life_and_what_knows_no_verb_is_not_linked_anew(linkable: Bed) -> None:
    """Cell b: of another kind, or in legacy-bootstrap mode."""
    other = finding("PD501", cell="b")
    assert linkable.until(other)[1].act is Act.CO_RESTART


def test_a_side_that_must_not_be_restarted_alone_is_restarted_with_its_cell(tmp_path: Path) -> None:
    down = finding("PD201", subject="decode-a")
    alone = Bed(tmp_path / "alone")
    assert alone.until(down)[1].target == "decode-a"
    paired = Bed(tmp_path / "paired", pairs=frozenset({"a"}))
    assert (paired.until(down)[1].act, paired.until(down)[1].target) == (Act.CO_RESTART, "a")


def test_the_only_decode_in_a_crash_loop_takes_a_person(tmp_path: Path) -> None:
    bed = Bed(tmp_path, cells=("a",))
    bed.quiet(finding("PD203", subject="decode-a"), seconds=300, decode_a=SILENT | {"reach": Reach.REFUSED})
    assert bed.state() is State.PERSON and len(bed.ward.urgent) == 1


def test_one_of_two_decodes_in_a_crash_loop_is_cordoned(tmp_path: Path) -> None:
    bed = Bed(tmp_path, cells=("a",), more={"a": ("decode-other",)})
    loop = finding("PD203", subject="decode-a")
    decision = bed.until(loop, decode_a=SILENT | {"reach": Reach.REFUSED})[1]
    assert (decision.act, decision.target) == (Act.CORDON, "decode-a")


def test_a_finding_that_the_policy_does_not_name_is_told_a_person(bed: Bed) -> None:
    bed.quiet(finding("PD684"), seconds=120)
    assert bed.state() is State.PERSON
    assert "allows no action for PD684" in bed.store.recent()[0].timeline[-1].text


def test_an_action_that_is_switched_off_is_not_done(tmp_path: Path) -> None:
    bed = Bed(tmp_path, policy(on={"PD501": {"co-restart": {"enabled": False}}}))
    bed.quiet(WEDGE, seconds=300)
    assert bed.state() is State.PERSON


def test_a_co_restart_that_stopped_half_way_is_ill_until_the_cell_serves_again(bed: Bed) -> None:
    """Held and stopped on purpose, it looks like nothing that diagnose would call an error."""
    held = RouterLook("router", "local", admission="held", hold_age=9.0)
    bed.act(*bed.until(WEDGE), outcome="failed")
    case, decision = bed.until(router=held, seconds=400)
    assert "the co-restart stopped" in decision.why
    bed.act(case, decision, "failed")
    bed.quiet(router=held, seconds=300)
    assert bed.state() is State.PERSON
    bed.ward.attended()
    bed.quiet(seconds=120)
    assert bed.state() is State.SERVING


def test_saturation_that_moves_is_not_even_suspicious(tmp_path: Path) -> None:
    bed = Bed(tmp_path, policy(supervisor={"diagnose_every": 1e6}))
    bed.quiet(seconds=30)
    for n in range(200):
        full = {"queues": {"inflight": Queue(40, 90.0)}, "peers": (peer("x", ok=n),)}
        seen = bed.seen(prefill_a=full, prefill_b=full)
        bed.clock.pass_(EVERY)
        assert not bed.ward.look(seen)
    assert bed.state() is State.SERVING and not bed.store.recent()


def test_what_is_queued_and_does_not_move_is_looked_at(bed: Bed) -> None:
    full = {"queues": {"inflight": Queue(1, 9.0)}}
    bed.look(prefill_a=full)
    bed.clock.pass_(EVERY)
    assert bed.ward.look(bed.seen(prefill_a=full)) == {"a"}


def test_an_engine_that_its_router_passes_by_is_looked_at(bed: Bed) -> None:
    entry = RouterEngine("decode-b", "decode", "b", "", False, False, None, "silent", None, 0)
    front = RouterLook("router", "local", admission="open", engines=(entry,))
    assert bed.ward.look(bed.seen(router=front)) == {"b"}


def test_another_policy_counts_from_its_reload_on(bed: Bed) -> None:
    bed.look(WEDGE)
    bed.ward.reform(policy(on={"PD501": {"co-restart": {"after": 300.0}}}))
    bed.quiet(WEDGE, seconds=250)
    assert bed.until(WEDGE, seconds=100)


def test_an_act_under_way_is_not_disturbed_by_looks(bed: Bed) -> None:
    case, decision = bed.until(WEDGE)
    id = bed.ward.began(case, decision)
    bed.quiet(WEDGE, finding("PD201", subject="decode-a"), seconds=120)
    assert bed.state() is State.ACTING
    bed.ward.ended(case, id, decision, "done", "")
    bed.quiet(seconds=90)
    assert bed.state() is State.SERVING


def test_an_engine_has_its_own_states_and_they_are_in_the_timeline(bed: Bed) -> None:
    bed.until(WEDGE)
    for _ in range(10):
        bed.look(WEDGE, decode_a=SILENT)
    assert bed.ward.engines["decode-a"].state is State.ILL
    assert bed.ward.engines["prefill-a"].state is State.SERVING
    bed.quiet(seconds=90)
    said = [m.text for m in bed.store.recent()[0].timeline if m.text.startswith("decode-a: ")]
    assert (
        said
        == ["decode-a: suspect: silent", "decode-a: ill", "decode-a: settling", "decode-a: serving"][
            : len(said)
        ]
    )
    assert len(said) >= 3


def test_a_cell_that_left_the_fleet_file_takes_its_incident_along(bed: Bed) -> None:
    bed.until(WEDGE)
    bed.cells = ("b",)
    bed.born()
    assert not bed.store.recent(open_only=True)
