"""Real engines whose prefill keeps stale peers, as fleets of today do: wedged, found, healed, and left alone.

What is printed is from the fault to admissions that are open again, beside what an engine alone needs to
start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from pdctl.flows.diagnose import judge_bundle
from pdctl.flows.load.run import Shape, drive
from pdctl.supervisor.states import State
from tests.pdctl.flows.supervise.live import HEAL, START, Ward, wait, ward

SATURATED = 48  # agents; an engine runs 16 requests at once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def legacy(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    env = {"PD_STEP_TIMEOUT": "30"}
    with ward(tmp_path_factory.mktemp("ward"), smollm, tp=2, env=env) as made:
        assert made.serves()
        yield made


@pytest.mark.parametrize("loaded", [True, False], ids=["under requests", "idle"])
def test_a_decode_that_came_back_alone_is_found_and_the_pair_restarted(legacy: Ward, loaded: bool) -> None:
    with legacy.supervised():
        before, lives = legacy.newest(), legacy.lives()
        legacy.kill("decode-0")
        if loaded:
            legacy.send(2)
        incident = legacy.healed(before)
        (done,) = [a for a in legacy.actions(incident.id) if a.outcome != "refused"]
        assert (done.action, done.outcome) == ("co-restart", "done")
        assert incident.codes[0] in ("PD501", "PD502", "PD602") and Path(incident.evidence).is_file()
        assert all(legacy.lives()[name] != lives[name] for name in lives), "both sides began a new life"
        print(told(legacy, incident.opened))


def told(legacy: Ward, opened: float) -> str:
    """How long it took, by the run that healed it."""
    run = legacy.run()
    (report,) = [n.data["report"] for n in run.notes if n.what == "co-restart"]
    alone = max(float(s["ready_s"] or 0.0) for s in report["cells"][0]["starts"])
    found, served = opened - legacy.fault, run.started + float(run.seconds or 0.0) - legacy.fault
    return (
        f"confirmed {found:.1f} s and served again {served:.1f} s after the fault; "
        f"an engine alone starts in {alone:.1f} s"
    )


def _freeze(rank: int | None) -> Callable[[Ward], None]:
    """A rank of decode, or with None the process that answers its HTTP."""

    def strike(legacy: Ward) -> None:
        name = "decode-0"
        legacy.strike(legacy.pid(name) if rank is None else legacy.rank(name, rank), signal.SIGSTOP)

    return strike


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param(_freeze(1), id="a frozen rank"),
        pytest.param(_freeze(0), id="a frozen leader"),
        pytest.param(_freeze(None), id="a frozen API process"),
        pytest.param(lambda legacy: legacy.arm("decode-0", "stop-steps"), id="no step"),
    ],
)
def test_a_decode_that_its_own_watchdog_ended_is_back_alone_and_the_pair_restarted(
    legacy: Ward, strike: Callable[[Ward], None]
) -> None:
    """The watchdog and the unit do their part; what they leave behind is a pair that does not work."""
    with legacy.supervised():
        before, lives = legacy.newest(), legacy.lives()
        strike(legacy)
        legacy.send(2)
        incident = legacy.healed(before)
        (done,) = [a for a in legacy.actions(incident.id) if a.outcome != "refused"]
        assert (done.action, done.outcome) == ("co-restart", "done")
        assert Path(incident.evidence).is_file()
        assert all(legacy.lives()[name] != lives[name] for name in lives), "both sides began a new life"
        print(told(legacy, incident.opened))


def test_a_new_link_does_not_mend_what_a_legacy_pair_keeps(legacy: Ward) -> None:
    """Whoever tries it by hand is told so; the supervisor does not try, and restarts the pair."""
    legacy.kill("decode-0")
    wait("decode to be linked", lambda: legacy.state("decode-0").get("ready"), START)
    said = legacy.fails("relink", "prefill-0", "decode-0", "--yes", "--wait", "5")
    assert "prefill-0 is not linked with decode-0" in said and "pdctl restart --co a" in said
    before = legacy.newest()
    with legacy.supervised():
        incident = legacy.healed(before)
        assert [a.action for a in legacy.actions(incident.id) if a.outcome == "done"] == ["co-restart"]


def test_healthy_saturation_triggers_nothing(legacy: Ward) -> None:
    """Ten minutes of more agents than there are slots: queues are long, and everything moves."""
    with legacy.supervised():
        before, lives, began = legacy.newest(), legacy.lives(), time.time()
        shape = Shape(agents=SATURATED, seconds=600.0, deadline=600.0)
        shots = asyncio.run(drive(legacy.ctx, shape)).shots
        waits = deepest(legacy, began)
        print(f"{len(shots)} requests, {sum(not s.ok for s in shots)} failed, {waits:.0f} waited at the most")
        assert len(shots) > SATURATED and waits > SATURATED / 4, "it was saturated"
        assert not legacy.incidents(before) and legacy.lives() == lives, legacy.log


def deepest(legacy: Ward, since: float) -> float:
    """The most requests that waited in the cell in one look, as the history has it."""
    asked = (
        "SELECT max(waiting) FROM samples JOIN subjects ON subjects.id = subject"
        " WHERE tier = 0 AND kind = 'cell' AND at >= ?"
    )
    with closing(sqlite3.connect(legacy.ctx.fleet.paths.supervisor)) as db:
        (most,) = db.execute(asked, (since,)).fetchone()
    return float(most or 0.0)


def test_paused_means_untouched(legacy: Ward) -> None:
    with legacy.supervised():
        before = legacy.newest()
        said = json.loads(legacy.pdctl("--json", "pause", "--for", "2h", "--reason", "new disks"))
        assert (said["reason"], said["acting"]) == ("new disks", "")
        legacy.kill("decode-0")
        legacy.send()
        wait("the incident", lambda: legacy.incidents(before), HEAL)
        lives = legacy.lives()
        (incident,) = legacy.incidents(before)
        wait("looks after that", lambda: seen(legacy, 10), HEAL)
        assert legacy.lives() == lives and not legacy.actions(incident.id), legacy.log
        legacy.pdctl("resume")
        assert legacy.healed(before).id == incident.id


def seen(legacy: Ward, seconds: float) -> bool:
    """Whether the history has looks of so many seconds since the incident opened."""
    opened = max(i.opened for i in legacy.incidents())
    with closing(sqlite3.connect(legacy.ctx.fleet.paths.supervisor)) as db:
        (newest,) = db.execute("SELECT max(at) FROM looks").fetchone()
    return bool(newest and newest >= opened + seconds)


@pytest.mark.parametrize("at", ["stop decodes", "start prefills"])
def test_a_supervisor_that_is_killed_half_way_is_continued_by_its_successor(legacy: Ward, at: str) -> None:
    legacy.start()
    before = legacy.newest()
    legacy.kill("decode-0")
    legacy.send()
    wait(f"it to {at}", lambda: f"cell a: {at}" in legacy.log, HEAL)
    legacy.end(signal.SIGKILL)
    died = legacy.run()
    assert died.state == "died" and not legacy.serves()
    with legacy.supervised():
        incident = legacy.healed(before)
    assert [a.outcome for a in legacy.actions(incident.id)] == ["cut-off", "done"]
    assert legacy.run().resumes == died.id and legacy.run().state == "done"
    assert f"run {died.id} of an earlier supervisor died half way" in legacy.log


def test_a_supervisor_that_is_restarted_touches_nothing(legacy: Ward) -> None:
    before, lives = legacy.newest(), legacy.lives()
    for number in (signal.SIGKILL, signal.SIGTERM):
        legacy.start()
        wait("it to look", lambda: seen_by(legacy), START)
        legacy.end(number)
    assert legacy.lives() == lives and not legacy.incidents(before)


def seen_by(legacy: Ward) -> bool:
    return "looks after" in legacy.log


@contextmanager
def taken(address: str, port: int) -> Iterator[None]:
    """A stranger on that port, as soon as it is free."""
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def bound() -> bool:
            with suppress(OSError):
                stranger.bind((address, port))
                stranger.listen()
                return True
            return False

        wait("the port", bound, START)
        yield


def test_a_crash_loop_ends_in_needs_a_person_with_the_evidence(legacy: Ward) -> None:
    """Its port is a stranger's, so each of its lives ends at once and its supervisor gives it up."""
    decode = legacy.ctx.fleet.engine("decode-0")
    with legacy.supervised():
        before = legacy.newest()
        pid = legacy.ctx.units("local").status(["decode-0"])["decode-0"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with taken(decode.address, decode.port):
            wait("it to be given up", lambda: needs_person(legacy, before), HEAL)
            (incident,) = [i for i in legacy.incidents(before) if i.open]
            assert Path(incident.evidence).is_file()
            report = judge_bundle(Path(incident.evidence))
            assert {p.finding.code for p in report.verdict.findings} & {"PD203", "PD206", "PD213", "PD201"}
            tried = [a for a in legacy.actions(incident.id) if a.outcome in ("done", "failed")]
            assert len(tried) <= 4, "it did not try for ever"
        legacy.pdctl("restart", "--co", "a", "--yes", timeout=HEAL)
        legacy.pdctl("resume")
        legacy.healed(before)


def needs_person(legacy: Ward, before: int) -> bool:
    return any(i.state == State.PERSON for i in legacy.incidents(before))


def test_a_prefill_that_comes_back_alone_heals_by_itself_and_is_left_to(legacy: Ward) -> None:
    """Decode drops what it held of the old life: whoever restarted the pair would only cost time."""
    with legacy.supervised():
        before, decode = legacy.newest(), legacy.lives()["decode-0"]
        legacy.kill("prefill-0")
        wait("requests to be served", legacy.serves, HEAL)
        wait("no incident to be open", lambda: not any(i.open for i in legacy.incidents(before)), HEAL)
        assert legacy.lives()["decode-0"] == decode
