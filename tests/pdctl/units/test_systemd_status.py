"""What systemd says in the words of UnitStatus: answers of a real systemd 252, one for each way to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdctl.units.spec import UnitStatus
from pdctl.units.systemd_status import parse

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded/systemd_252.json").read_text())


def status(name: str) -> UnitStatus:
    answer = RECORDED[name]
    return parse("unit", answer["unit"], answer)


LOOKS = {
    "absent": ("missing", "not installed"),
    "never started": ("inactive", "never started"),
    "active": ("active", ""),
    "watchdog, waiting": ("restarting", "watchdog: no sign of life"),
    "back after the watchdog": ("active", ""),
    "killed, waiting": ("restarting", "ended by signal 9 (SIGKILL)"),
    "stopped by hand": ("inactive", "stopped or ended, and not by pdctl"),
    "unit file gone": ("missing", "its unit file is gone"),
    "masked": ("missing", "it is masked"),
    "crash loop": ("failed", "start-limit: 3 failures in a row, the last one: exit code 7"),
    "wrong configuration": ("failed", "exit code 2, which a restart cannot cure"),
    "failed and may not be restarted": ("failed", "exit code 1"),
    "ended by itself": ("inactive", "stopped or ended, and not by pdctl"),
    "stopped by force": ("inactive", "stopped; a deadline passed and it was killed"),
    "after a reboot": ("active", ""),
}
LAST_WORDS = {
    "no such program": "its program cannot be executed",
    "no env file": "its env file or memory is missing",
    "no working directory": "its working directory cannot be entered",
    "never ready": "a deadline passed and it was killed",
    "ended without a word": "it never said READY=1",
}


@pytest.mark.parametrize("name", LOOKS)
def test_state_and_reason(name: str) -> None:
    found = status(name)
    assert (found.state, found.reason) == LOOKS[name]
    assert found.running == (found.state == "active")


@pytest.mark.parametrize("name", LAST_WORDS)
def test_why_a_unit_gave_up(name: str) -> None:
    found = status(name)
    assert found.state == "failed"
    assert found.reason.startswith("start-limit: ") and found.reason.endswith(LAST_WORDS[name])


def test_who_started_what_runs() -> None:
    names = ("active", "back after a kill", "restarted by hand", "after a reboot", "stopped by hand")
    assert [status(n).started_by for n in names] == ["pdctl", "supervisor", "hand", "boot", ""]


def test_the_life_before_is_told_of() -> None:
    killed, barked = status("back after a kill"), status("back after the watchdog")
    assert (killed.exit_signal, killed.exit_code, killed.restarts) == (9, None, 2)
    assert (barked.exit_signal, barked.restarts) == (6, 1)
    assert (status("crash loop").exit_code, status("crash loop").exit_signal) == (7, None)
    assert status("active").exit_code is None


def test_what_pdctl_started_last_is_wanted() -> None:
    wanted = {name for name in RECORDED if status(name).wanted}
    assert wanted >= {"active", "crash loop", "stopped by hand", "after a reboot"}
    assert not wanted & {"absent", "never started", "stopped by force"}


def test_times_are_of_the_calendar() -> None:
    found, now = status("active"), RECORDED["active"]["now"]
    assert found.started_at is not None and found.since is not None
    assert now - 10.0 < found.started_at <= found.since <= now
    assert found.inputs == "d1" and found.status == "all fine"


def test_a_host_that_still_boots_started_it_itself() -> None:
    answer = json.loads(json.dumps(RECORDED["restarted by hand"]))
    answer["booted"] = 0
    assert parse("unit", answer["unit"], answer).started_by == "boot"
    answer["unit"]["asked"] = ""
    assert parse("unit", answer["unit"], answer).started_by == ""
