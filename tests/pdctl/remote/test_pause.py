"""The supervisor's pause on the control host: who, until when by that host's own clock, and its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pdctl.errors import PdctlError
from pdctl.fleet.model import Host
from pdctl.fleet.schema import HostTable
from pdctl.remote.pause import PauseSwitch
from pdctl.remote.pause_tool import settle
from pdctl.transport.local import LocalTransport

ASK = {"by": "ann@desk", "reason": "new disks", "seconds": 100.0}


def at(up: float, boot: str = "one", now: float = 1e9) -> dict[str, Any]:
    return {"now": now + up, "boot": boot, "up": up}


def test_a_pause_ends_by_the_clock_that_nobody_sets() -> None:
    kept, answer = settle("pause", ASK, {}, at(50))
    assert answer["pause"]["left"] == 100
    assert settle("look", {}, kept, at(149, now=9e9))[1]["pause"]["left"] == 1
    assert settle("look", {}, kept, at(150, now=0))[1]["pause"] is None


def test_over_a_reboot_the_date_tells() -> None:
    kept, _ = settle("pause", ASK, {}, at(50))
    assert settle("look", {}, kept, at(5, "two", now=1e9 + 100))[1]["pause"]["left"] == 45
    assert settle("look", {}, kept, at(5, "two", now=1e9 + 500))[1]["pause"] is None


def test_without_an_end_it_lasts_until_somebody_resumes() -> None:
    kept, _ = settle("pause", {**ASK, "seconds": None}, {}, at(50))
    answer = settle("look", {}, kept, at(1e9))[1]
    assert answer["pause"]["left"] is None and answer["attended"] == ""
    kept, answer = settle("resume", {"attended": "x1"}, kept, at(60))
    assert (answer["was"], answer["pause"], answer["attended"]) == (True, None, "x1")
    kept, answer = settle("resume", {"attended": "x2"}, kept, at(70))
    assert (answer["was"], answer["attended"]) == (False, "x2")
    assert settle("pause", ASK, kept, at(80))[1]["attended"] == "x2"


def test_on_a_real_host_also_when_its_file_is_torn(tmp_path: Path) -> None:
    host = Host("local", HostTable(), str(tmp_path / "root"))
    switch = PauseSwitch(host, lambda: LocalTransport("local"))
    assert switch.look() == (None, "")
    paused = switch.pause("ann@desk", "new disks", 7200.0)
    found, _ = switch.look()
    assert found is not None and found.since == paused.since
    assert re.fullmatch(r"paused by ann@desk for (2 h|1[12]\d min) more: new disks", found.words())
    assert switch.resume() and not switch.resume()
    switch.pause("ann@desk", "", None)
    file = tmp_path / "root" / "pause"
    for torn in ('{"pause": {"by"', '{"pause": {"by": "ann"}}', "[]", ""):
        file.write_text(torn)
        found, _ = switch.look()
        assert found is not None and found.left is None, "who cannot tell that nobody paused it does not act"
        assert found.words() == f"paused by a torn file until `pdctl resume`: {file} cannot be read"
    assert switch.resume() and switch.look()[0] is None
    file.unlink()
    file.mkdir()
    with pytest.raises(PdctlError, match="Is a directory"):
        switch.look()
