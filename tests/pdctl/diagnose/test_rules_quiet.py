"""Healthy, busy, saturated, starting and draining fleets give no finding above info."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pdctl.adapters.picture import Reach
from pdctl.diagnose.report import make
from pdctl.diagnose.rule import Severity
from pdctl.facts.clock import Clock
from pdctl.facts.machine import Room
from pdctl.facts.missing import Missing
from pdctl.facts.ports import TAKEN, Holder, PortState
from pdctl.facts.process import Process
from pdctl.facts.reach import Reached
from pdctl.facts.unit import Unit

AT = 1_700_000_000.0
Scene = Any
Make = Callable[[Scene, Callable[..., Any], Callable[..., Any]], None]


def healthy(scene: Scene, leg: Any, peer: Any) -> None:
    scene.expected["prefill-0"] = {"PD_PREFILL_INFLIGHT_TIMEOUT": "120"}
    environ = {"PD_PREFILL_INFLIGHT_TIMEOUT": "120.0", "PD_FLEET_TOKEN_FILE": "x"}
    scene.processes["prefill-0"] = Process(1, "sleeping", AT, environ)


def applied_live(scene: Scene, leg: Any, peer: Any) -> None:
    """tune-timeout wrote the profile and set the value live: the old environment no longer matters."""
    scene.expected["prefill-0"] = {"PD_PREFILL_INFLIGHT_TIMEOUT": "110"}
    scene.docs["prefill-0"]["timeouts"]["inflight"] |= {"value": 110.0, "source": "admin"}
    scene.processes["prefill-0"] = Process(1, "sleeping", AT, {"PD_PREFILL_INFLIGHT_TIMEOUT": "120"})


def busy(scene: Scene, leg: Any, peer: Any) -> None:
    scene.steps |= {"prefill-0": 9, "decode-0": 30}
    scene.route("r1", 5.0, stage="streaming")
    scene.route("r2", 0.4)
    scene.route("r3", 0.1)
    scene.route("r4", 6.0)
    scene.new_to_router = {"r3"}
    scene.hold("decode-0", leg("r1", "running", output_tokens=9, stage_age_s=5.0))
    scene.hold("prefill-0", leg("r2", "inflight", stage_age_s=0.2, waiting_on="transfer"))
    scene.hold("decode-0", leg("r2", "transferring", stage_age_s=0.2, waiting_on="transfer"))
    scene.hold("prefill-0", leg("r4", "waiting", stage_age_s=6.0, age_s=6.0))
    scene.hold("decode-0", leg("r4", "preallocated", stage_age_s=0.1))


def put_back(scene: Scene, leg: Any, peer: Any) -> None:
    """A request that decode put back needs the pages of what it had generated; those behind it need few."""
    scene.steps |= {"decode-0": 30}
    scene.docs["decode-0"]["pages"] |= {"free": 14, "held": 86}
    for number, told in ((5, 230), (6, 20), (7, 0)):
        scene.route(f"r{number}", 40.0, stage="streaming")
        waits = {"stage_age_s": 17.0, "waiting_on": "pages", "pages": 0, "output_tokens": told}
        scene.hold("decode-0", leg(f"r{number}", "waiting", **waits))


def saturated(scene: Scene, leg: Any, peer: Any) -> None:
    scene.steps |= {"decode-0": 30}
    for number in range(1, 5):
        scene.route(f"r{number}", 40.0, stage="streaming")
        scene.hold("decode-0", leg(f"r{number}", "running", pages=25, stage_age_s=30.0))
    for number in range(5, 9):
        scene.route(f"r{number}", 40.0)
        held = {"waiting_on": "want"} if number < 7 else {"waiting_on": "decode", "pages": 0}
        stage = "inflight" if number < 7 else "waiting"
        scene.hold("prefill-0", leg(f"r{number}", stage, stage_age_s=35.0, **held))
        waits = "pages" if number == 5 else None
        scene.hold("decode-0", leg(f"r{number}", "waiting", pages=0, stage_age_s=35.0, waiting_on=waits))


def just_granted(scene: Scene, leg: Any, peer: Any) -> None:
    """Long in the inflight queue for want of a decode slot, which it got a moment ago."""
    scene.steps |= {"decode-0": 30}
    scene.route("r5", 40.0)
    scene.hold("prefill-0", leg("r5", "inflight", stage_age_s=35.0, waiting_on="want", peer="decode-0"))
    scene.hold("decode-0", leg("r5", "preallocated", stage_age_s=0.1, waiting_on="transfer"))


def starting(scene: Scene, leg: Any, peer: Any) -> None:
    for name in ("prefill-0", "decode-0"):
        scene.docs[name] |= {
            "status": "starting", "ready": False, "not_ready": ["link"], "started_at": AT - 8, "peers": [],
        }  # fmt: skip
        scene.units[name] = Unit(name, "starting", True, 100, None, 0, AT - 8, AT - 8)


def loading(scene: Scene, leg: Any, peer: Any) -> None:
    """What an engine says before its leader is up; it listens for links later."""
    starting(scene, leg, peer)
    way = scene.docs["prefill-0"]["bootstrap"]
    scene.hosts = [replace(scene.hosts[0], reach={way: Reached("refused", 0.0)})]
    for doc in scene.docs.values():
        doc |= {
            "not_ready": ["the model is loading"], "snapshot_age_s": None, "queues": {}, "counters": {},
            "fingerprint": {}, "versions": {"python": "3.11"},
            "pages": {"total": 0, "free": 0, "held": 0, "quarantined": 0, "page_size": 0},
            "ranks": [{"rank": 0, "pid": 9, "heartbeat_age_s": None}],
        }  # fmt: skip
        doc["progress"] |= {"loop_age_s": None, "last_step_age_s": None}


def draining(scene: Scene, leg: Any, peer: Any) -> None:
    scene.steps |= {"decode-0": 12}
    scene.router |= {"admission": "held", "held": 3, "hold_age_s": 6.0}
    scene.run = "ann@laptop (pid 7) for 8 s: pdctl restart --co a"
    scene.route("r9", 5.0, stage="held")
    scene.docs["decode-0"]["status"] = "draining"
    scene.docs["prefill-0"]["status"] = "drained"
    scene.hold("decode-0", leg("r1", "running", stage_age_s=20.0, age_s=20.0))
    scene.route("r1", 20.0, stage="streaming")


def healed_after_restart(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["decode-0"] |= {"started_at": AT - 40, "incarnation": "00000000000000ff"}
    old = peer("decode-0", stale=True, linked=False)
    scene.docs["prefill-0"]["peers"] = [
        old,
        peer("decode-0", incarnation="00000000000000ff", since_age_s=30.0),
    ]


def long_step(scene: Scene, leg: Any, peer: Any) -> None:
    scene.docs["prefill-0"]["progress"] |= {"stepping_s": 8.0, "last_step_age_s": 8.0, "loop_age_s": 8.0}
    scene.hold("prefill-0", leg("r1", "prefilling", stage_age_s=9.0))
    scene.route("r1", 9.0)
    scene.hold("decode-0", leg("r1", "preallocated", stage_age_s=2.0))


def moving_write(scene: Scene, leg: Any, peer: Any) -> None:
    """Slow and alive: bytes grow between the samples."""
    scene.route("r1", 20.0)
    now = leg("r1", "inflight", stage_age_s=18.0, waiting_on="transfer", bytes=5000)
    scene.hold("prefill-0", now)
    scene.before["prefill-0"] = {"requests": [now | {"bytes": 3000, "stage_age_s": 17.0}]}
    there = leg("r1", "transferring", stage_age_s=18.0, waiting_on="transfer", bytes=5000)
    scene.hold("decode-0", there)


@pytest.mark.parametrize(
    "make_scene",
    [
        healthy,
        applied_live,
        busy,
        saturated,
        put_back,
        just_granted,
        starting,
        loading,
        draining,
        healed_after_restart,
        long_step,
        moving_write,
    ],
    ids=lambda f: f.__name__,
)
def test_no_finding_above_info(make_scene: Make, scene: Scene, legs: Any, peers: Any) -> None:
    make_scene(scene, legs, peers)
    report = make(scene.facts(), 1.0)
    loud = [p.finding.summary for p in report.verdict.findings if p.finding.severity > Severity.INFO]
    assert loud == []
    assert report.verdict.status == "healthy"
    assert report.exit(Severity.WARNING) == 0


def test_saturation_is_told_as_capacity_not_as_a_stall(scene: Scene, legs: Any, peers: Any) -> None:
    saturated(scene, legs, peers)
    report = make(scene.facts(), 1.0)
    assert [p.finding.code for p in report.verdict.findings] == ["PD603"]
    assert {e.verdict for e in report.ledger} == {"moving", "waiting"}


def test_an_engine_on_its_own_port_and_clocks_within_their_error_are_quiet(scene: Any, hosts: Any) -> None:
    port = int(scene.docs["decode-0"]["address"].rpartition(":")[2])
    own = Holder("127.0.0.1", "pd", 101, (100, 1), "python -m engine", "")
    scene.hosts = [
        hosts("local", ports=(PortState("127.0.0.1", port, TAKEN, (own,)),)),
        hosts("slow", clock=Clock(3.0, 2.5), disk=Room("/", 1 << 40, 1 << 30, None)),
    ]
    assert make(scene.facts(), 1.0).verdict.findings == ()


def test_a_stranger_on_the_port_of_a_unit_that_was_stopped_disturbs_nobody(scene: Any, hosts: Any) -> None:
    port = int(scene.docs["decode-0"]["address"].rpartition(":")[2])
    stranger = Holder("127.0.0.1", "pd", 4711)
    scene.hosts = [hosts(ports=(PortState("127.0.0.1", port, TAKEN, (stranger,)),))]
    scene.reach["decode-0"] = Reach.REFUSED
    scene.units["decode-0"] = Unit("decode-0", "stopped", False, None, 0, 0, AT - 20)
    assert {p.finding.code for p in make(scene.facts(), 1.0).verdict.findings} == {"PD201"}


def test_hosts_that_were_not_asked_skip_their_rules_aloud(scene: Any, hosts: Any) -> None:
    away = Missing("the host is away")
    scene.hosts = [hosts(clock=away, disk=away, ports=away, reach=away)]
    skipped = {s.code: s for s in make(scene.facts(), 1.0).ran.skipped}
    assert {"PD206", "PD302", "PD801", "PD701"} <= skipped.keys()
    assert skipped["PD701"].subject == "local" and "away" in skipped["PD701"].reason
