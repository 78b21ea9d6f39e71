"""One run at a time; a held lock names its holder, a dead holder's is taken over, a person's never."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import ConfigError, LockedError, UnreachableError
from pdctl.exits import Exit
from pdctl.remote.lock import STALE, FleetLock, HeldError, holder_for, lock_on, span
from pdctl.remote.lock_lease import Lease, hold
from pdctl.remote.operator import Operator, me
from pdctl.transport.local import LocalTransport
from tests.pdctl.remote.conftest import here, tell

Spawn = Callable[[], subprocess.Popen[str]]
ELSEWHERE = Operator("ann", "elsewhere", "another boot pid:[1]", 4242, 17)


def quiet(text: str) -> None:
    pass


def end(run: subprocess.Popen[str], number: signal.Signals) -> None:
    run.send_signal(number)
    run.wait(20)


def test_a_held_lock_names_its_holder(lock: FleetLock, holding: Spawn) -> None:
    run = holding()
    with pytest.raises(HeldError) as caught, hold(lock, "pdctl down", "r", quiet):
        pass
    assert f"(pid {run.pid})" in caught.value.message and "pdctl deploy" in caught.value.message
    assert caught.value.exit is Exit.LOCKED
    assert caught.value.holder.run == "run-1"
    tell(run)
    run.wait(20)
    assert lock.look() is None


def test_a_dead_holder_on_this_machine_is_taken_over_at_once(lock: FleetLock, holding: Spawn) -> None:
    run = holding()
    end(run, signal.SIGKILL)
    said: list[str] = []
    with hold(lock, "pdctl down", "r", said.append) as lease:
        found = lock.look()
        assert found is not None and found.pid == os.getpid()
        assert lease.over is not None and lease.over.pid == run.pid
    assert len(said) == 1 and f"pid {run.pid}" in said[0] and "dead" in said[0]


def test_a_frozen_holder_on_this_machine_is_alive_however_old_its_heartbeat(
    lock: FleetLock, holding: Spawn, tmp_path: Path
) -> None:
    run = holding()
    run.send_signal(signal.SIGSTOP)
    age(tmp_path, STALE + 60)
    with pytest.raises(HeldError), hold(lock, "pdctl down", "r", quiet):
        pass


def age(root: Path, seconds: float) -> None:
    """As if the last heartbeat had been that long ago."""
    entry = json.loads((root / "lock").read_text())
    entry |= {k: entry[k] - seconds for k in ("heartbeat", "up")}
    (root / "lock").write_text(json.dumps(entry))


def test_a_holder_elsewhere_is_judged_by_its_heartbeat(lock: FleetLock, tmp_path: Path) -> None:
    assert lock.take(holder_for(ELSEWHERE, "theirs", "pdctl deploy", "r1")) is None
    age(tmp_path, STALE - 10)
    with pytest.raises(HeldError, match="ann@elsewhere"), hold(lock, "pdctl down", "r", quiet):
        pass
    age(tmp_path, 20)
    with hold(lock, "pdctl down", "r", quiet) as lease:
        assert lease.over is not None and lease.over.owner == "ann"
    assert lock.look() is None


def test_the_age_of_a_heartbeat_does_not_follow_the_wall_clock(lock: FleetLock, tmp_path: Path) -> None:
    lock.take(holder_for(ELSEWHERE, "theirs", "pdctl deploy"))
    entry = json.loads((tmp_path / "lock").read_text())
    (tmp_path / "lock").write_text(json.dumps(entry | {"heartbeat": entry["heartbeat"] - 3600}))
    found = lock.look()
    assert found is not None and found.age < 30 and not found.stale


def test_the_same_name_of_another_machine_is_not_taken_for_this_one(lock: FleetLock) -> None:
    """Two hosts called `vm`: the other's pids say nothing here, so only its heartbeat counts."""
    twin = Operator("ann", me().host, "another boot pid:[1]", 1 << 22, 1)
    lock.take(holder_for(twin, "theirs", "pdctl deploy"))
    with pytest.raises(HeldError):
        lock.take(holder_for(me(), "ours", "pdctl down"))


def test_a_reused_pid_is_not_the_holder(lock: FleetLock) -> None:
    mine = me()
    assert mine.start is not None
    before = Operator(mine.owner, mine.host, mine.machine, mine.pid, mine.start - 1)
    lock.take(holder_for(before, "old", "pdctl deploy"))
    over = lock.take(holder_for(mine, "new", "pdctl down"))
    assert over is not None and over.id == "old"


def test_the_lock_is_released_when_the_run_fails(lock: FleetLock) -> None:
    with pytest.raises(ZeroDivisionError), hold(lock, "pdctl deploy", "r", quiet):
        raise ZeroDivisionError
    assert lock.look() is None


@pytest.mark.parametrize("text", ['{"owner": "a', "[]", "{}", '{"id": 3}', ""])
def test_a_torn_lock_file_holds_nobody_up(lock: FleetLock, tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    with hold(lock, "pdctl deploy", "r", quiet) as lease:
        found = lock.look()
        assert found is not None and found.id == lease.holder.id


def test_of_many_at_once_one_gets_it(spawn: Spawn) -> None:
    runs = [spawn() for _ in range(4)]
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()
    said = [run.stdout.readline().strip() for run in runs if run.stdout is not None]
    assert sorted(said) == ["got", "locked", "locked", "locked"]


def test_a_take_whose_answer_was_lost_is_taken_when_it_is_asked_again(lock: FleetLock) -> None:
    mine = holder_for(ELSEWHERE, "same", "pdctl deploy")
    assert lock.take(mine) is None and lock.take(mine) is None


def test_a_manual_lock_is_never_stale_and_never_waited_for(lock: FleetLock, tmp_path: Path) -> None:
    lock.take(holder_for(ELSEWHERE, "hand", "pdctl lock take", reason="moving racks"))
    age(tmp_path, 30 * 86400)
    found = lock.look()
    assert found is not None and not found.stale
    said: list[str] = []
    with (
        pytest.raises(HeldError, match=r"by hand for .*: moving racks"),
        hold(lock, "pdctl deploy", "r", said.append, wait=600.0),
    ):
        pass
    assert said == []


def test_a_living_run_is_waited_for(lock: FleetLock, holding: Spawn) -> None:
    run = holding()
    said: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    def release() -> None:
        assert told.wait(60)
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()

    other = threading.Thread(target=release)
    other.start()
    with hold(lock, "pdctl deploy", "r", say, wait=120.0) as lease:
        assert lease.over is None, "it was released, not taken over"
    other.join()
    assert len(said) == 1 and f"pid {run.pid}" in said[0] and "Waiting up to" in said[0]


def test_waiting_ends_with_the_holders_name(lock: FleetLock, holding: Spawn) -> None:
    run = holding()
    with pytest.raises(HeldError, match=f"pid {run.pid}"), hold(lock, "pdctl deploy", "r", quiet, wait=0.5):
        pass


def test_a_lock_taken_by_force_stops_the_run_before_its_next_step(lock: FleetLock) -> None:
    said: list[str] = []
    with hold(lock, "pdctl deploy", "r", said.append) as lease:
        lease.check()
        assert lock.release(lease.holder.id)
        lock.take(holder_for(ELSEWHERE, "theirs", "pdctl down"))
        lease.beat()
        with pytest.raises(LockedError, match="taken from it; it is held by ann@elsewhere") as caught:
            lease.check()
        assert caught.value.code == "lock_lost"
    assert said == [f"lock lost: {lease.lost}"]
    found = lock.look()
    assert found is not None and found.id == "theirs", "the end of a run leaves another's lock alone"


def test_a_heartbeat_keeps_the_lock_by_itself(lock: FleetLock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdctl.remote.lock_lease.BEAT", 0.05)
    with hold(lock, "pdctl deploy", "r", quiet) as lease:
        lock.release(lease.holder.id)
        until = time.monotonic() + 30
        while not lease.lost:
            assert time.monotonic() < until, "nobody noticed that the lock is gone"
            time.sleep(0.02)


def broken(error: Exception) -> FleetLock:
    def ask(verb: str, question: dict[str, object]) -> dict[str, object]:
        raise error

    return FleetLock("h1", ask)


def test_a_control_host_that_cannot_be_reached_is_exit_5_and_nothing_changed() -> None:
    lock = broken(UnreachableError("unreachable", "h1 does not answer."))
    with pytest.raises(UnreachableError) as caught, hold(lock, "pdctl deploy", "r", quiet):
        pass
    assert caught.value.exit is Exit.UNREACHABLE
    assert caught.value.message == (
        "The fleet's lock is on h1, which cannot be reached, so nothing was changed."
    )
    assert caught.value.details == ("h1 does not answer.",)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_run_that_cannot_prove_its_lock_stops_when_others_may_have_it() -> None:
    said: list[str] = []
    clock = Clock()
    mine = holder_for(ELSEWHERE, "mine", "pdctl deploy")
    lease = Lease(broken(UnreachableError("x", "h1 is silent.")), mine, None, said.append, clock)
    clock.now = STALE - 1
    lease.check()
    assert said == ["the lock's heartbeat fails: h1 is silent. In 60 s others may take it over."]
    clock.now = STALE + 1
    with pytest.raises(LockedError, match="h1 could not be asked for 60 s"):
        lease.check()
    assert len(said) == 2


def test_a_heartbeat_that_cannot_be_written_is_said_and_the_lock_kept() -> None:
    said: list[str] = []
    answers = iter(["ROOT/lock: No space left on device", ""])

    def ask(verb: str, question: dict[str, object]) -> dict[str, object]:
        return {"mine": True, "holder": None, "problem": next(answers)}

    lease = Lease(FleetLock("h1", ask), holder_for(ELSEWHERE, "m", "c"), None, said.append)
    lease.beat()
    lease.check()
    lease.beat()
    assert "No space left" in said[0] and said[1] == "the lock on h1 can be kept again"


def test_a_place_where_no_lock_can_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lock = lock_on(here(tmp_path / "file" / "root"), lambda: LocalTransport("ctl"))
    with pytest.raises(ConfigError, match=r"cannot be used, so nothing was changed: .*Not a directory"):
        lock.take(holder_for(me(), "m", "c"))


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert lock_on(here(tmp_path / "new"), lambda: LocalTransport("ctl")).look() is None
    assert not (tmp_path / "new").exists()


def test_the_lock_is_private(lock: FleetLock, tmp_path: Path) -> None:
    with hold(lock, "pdctl deploy", "r", quiet):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_times_are_said_as_people_say_them() -> None:
    assert [span(s) for s in (-1, 0.4, 119, 130, 7300, 180000)] == [
        "0 s",
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
    ]


@pytest.mark.parametrize("meanwhile", ["another took it", "it came back"])
def test_a_judgement_counts_only_for_what_was_judged(lock: FleetLock, tmp_path: Path, meanwhile: str) -> None:
    lock.take(holder_for(ELSEWHERE, "dead", "pdctl deploy"))
    age(tmp_path, STALE + 10)

    def ask(verb: str, question: dict[str, Any]) -> dict[str, Any]:
        if "dead" in question and meanwhile == "it came back":
            assert lock.beat("dead")[0]
        elif "dead" in question:
            lock.release("dead")
            lock.take(holder_for(ELSEWHERE, "faster", "pdctl deploy"))
        return lock.ask(verb, question)

    with pytest.raises(HeldError) as caught:
        FleetLock("ctl", ask).take(holder_for(me(), "ours", "pdctl down"))
    assert caught.value.holder.id == ("dead" if meanwhile == "it came back" else "faster")
