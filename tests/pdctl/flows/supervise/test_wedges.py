"""Wedges that nothing but the supervisor ends: engines whose own watchdogs are as good as off.

Of each is printed how long it took from the fault until requests were served, beside what the engine alone
needs to start. What heals by itself is left to.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdctl.flows import admin
from pdctl.supervisor.incidents import Incident
from tests.pdctl.flows.supervise.halfopen import HalfOpen
from tests.pdctl.flows.supervise.live import HEAL, START, Ward, wait, ward

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# A day: the unit's watchdog is made of the first.
OFF = {"PD_RANK_TIMEOUT": "86400", "PD_STEP_TIMEOUT": "86400"}


@pytest.fixture(scope="module")
def patient(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with ward(tmp_path_factory.mktemp("ward"), smollm, legacy=False, tp=2, env=OFF) as made:
        assert made.serves()
        yield made


def served(patient: Ward, before: int) -> tuple[Incident, float]:
    """The incident, and seconds from the fault until a request was served again."""
    wait("the incident", lambda: patient.incidents(before), HEAL)
    (incident,) = patient.incidents(before)
    wait("an act to end", lambda: [a for a in patient.actions(incident.id) if a.outcome == "done"], HEAL)
    wait("requests to be served", patient.serves, HEAL)
    seconds = time.time() - patient.fault
    return patient.healed(before), seconds


def told(incident: Incident, patient: Ward, seconds: float, name: str) -> str:
    return (
        f"{', '.join(incident.codes)}: confirmed {incident.opened - patient.fault:.1f} s and served again "
        f"{seconds:.1f} s after the fault; {name} alone starts in {patient.alone(name):.1f} s"
    )


def freeze(name: str, rank: int | None) -> Callable[[Ward], None]:
    """A rank, or with None the process that answers HTTP."""
    return lambda patient: patient.strike(
        patient.pid(name) if rank is None else patient.rank(name, rank), signal.SIGSTOP
    )


@pytest.mark.parametrize(
    ("name", "strike"),
    [
        pytest.param("decode-0", freeze("decode-0", 0), id="a frozen leader"),
        pytest.param("prefill-0", freeze("prefill-0", 1), id="a frozen rank"),
        pytest.param("decode-0", freeze("decode-0", None), id="a frozen API process"),
        pytest.param("prefill-0", lambda patient: patient.arm("prefill-0", "stop-steps"), id="no step"),
    ],
)
def test_an_engine_that_stands_still_is_found_and_restarted(
    patient: Ward, name: str, strike: Callable[[Ward], None]
) -> None:
    with patient.supervised():
        before, life = patient.newest(), patient.lives()[name]
        strike(patient)
        patient.send(2)
        incident, seconds = served(patient, before)
        done = [(a.action, a.target) for a in patient.actions(incident.id) if a.outcome == "done"]
        assert done in ([("restart", name)], [("co-restart", "a")]), patient.log
        assert patient.lives()[name] != life and Path(incident.evidence).is_file()
        print(told(incident, patient, seconds, name))


def test_a_stalled_transfer_is_aborted_and_nothing_is_restarted(patient: Ward) -> None:
    with patient.supervised():
        before, lives = patient.newest(), patient.lives()
        patient.arm("prefill-0", "stall-transfer", count=1)
        patient.send(1)
        wait("the incident", lambda: patient.incidents(before), HEAL)
        wait("it to end", lambda: not patient.state("prefill-0")["requests"], HEAL)
        seconds = time.time() - patient.fault
        incident = patient.healed(before)
        assert "PD602" in incident.codes
        (action,) = [a for a in patient.actions(incident.id) if a.outcome == "done"]
        assert action.action == "abort" and patient.lives() == lives, patient.log
        print(told(incident, patient, seconds, "prefill-0"))


def test_a_link_that_is_half_open_heals_by_itself_and_is_left_to(patient: Ward) -> None:
    """Both its ends hear nothing, drop it at the heartbeat and link anew."""
    ends = linked(patient)
    with patient.supervised(), HalfOpen(*ends) as link:
        before, lives = patient.newest(), patient.lives()
        patient.fault = time.time()
        link.cut()
        wait("both to link anew", lambda: linked(patient) not in (ends, None), HEAL)
        wait("requests to be served", patient.serves, HEAL)
        print(f"served again {time.time() - patient.fault:.1f} s after the fault")
        assert link.dropped() > 0
        wait("no incident to be open", lambda: not any(i.open for i in patient.incidents(before)), HEAL)
        assert patient.lives() == lives
        assert not [a for i in patient.incidents(before) for a in patient.actions(i.id)], patient.log


def test_a_link_that_stays_half_open_is_mended_by_linking_anew(patient: Ward) -> None:
    """With a heartbeat that is as good as off both ends believe in it; nobody is restarted for it."""
    urls = [e.url for e in patient.ctx.fleet.engines()]
    for url in urls:
        admin.post(patient.ctx, url, "timeouts", {"heartbeat": 86400.0})
    lives = patient.lives()
    with HalfOpen(*linked(patient)) as link:
        link.cut()
        assert not patient.serves()
        began = time.monotonic()
        said = patient.pdctl("relink", "prefill-0", "decode-0", "--yes")
        assert "are linked, and a canary passed" in said
        print(f"linked anew and served in {time.monotonic() - began:.1f} s, with pdctl's own start")
    assert patient.serves() and patient.lives() == lives
    for url in urls:
        admin.post(patient.ctx, url, "timeouts", {"heartbeat": 5.0})


def linked(patient: Ward) -> tuple[int, int]:
    """(prefill's port, decode's port) of the control connection; waits for it."""
    found: list[tuple[int, int]] = []

    def look() -> bool:
        peers = patient.state("prefill-0").get("peers", [])
        ports = [int(str(p["address"]).rpartition(":")[2]) for p in peers if p["linked"]]
        found[:] = [(patient.ctx.fleet.engine("prefill-0").bootstrap_port or 0, port) for port in ports]
        return bool(found)

    wait("the pair to be linked", look, START)
    return found[0]
