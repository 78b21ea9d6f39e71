"""What is kept of a host: --since cuts a log at its lines, and of programs that serve nothing only names."""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

from pdctl.facts.ask import Answers
from pdctl.facts.collect import Gathered
from pdctl.flows.collect.hosts import _logs, _programs
from pdctl.flows.collect.parties import Collection
from pdctl.units.spec import UnitStatus

NOW = datetime(2026, 8, 20, 12, 0, tzinfo=UTC).timestamp()
LOG = (
    "a line before any time\n"
    "2026-08-20 09:00:00 old\n"
    "Traceback of the old one\n"
    "2026-08-20 11:40:00 young\n"
    "more of the young one\n"
    "2026-08-20 11:59:00 newest\n"
)
RUNNING = UnitStatus("a", "active", pid=7, started_at=NOW - 20_000)


def collected(text: str, status: UnitStatus, window: float = 1800.0, zone: int = 0) -> str:
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    found = Gathered({"a": status}, Answers({"zone": zone}, {}, NOW, 0.1))
    logs: dict[str, Any] = {"a": {"text": packed}}
    into = Collection()
    _logs(found, logs, window, into)
    return into.texts["a/log.txt"]


def test_lines_before_the_window_are_left_out() -> None:
    assert collected(LOG, RUNNING) == LOG[LOG.index("2026-08-20 11:40") :]
    assert collected(LOG, RUNNING, 60.0) == "2026-08-20 11:59:00 newest\n"
    assert collected(LOG, RUNNING, 86400.0) == LOG


def test_a_log_that_is_older_is_empty_and_one_without_times_is_whole() -> None:
    assert collected("2026-08-20 09:00:00 old\n", RUNNING) == ""
    assert collected("no time\nin any line\n", RUNNING) == "no time\nin any line\n"


def test_of_a_unit_that_ended_the_time_before_its_end_is_kept() -> None:
    down = UnitStatus("a", "failed", exit_code=71, since=NOW - 10_790)  # 09:00:10
    assert collected(LOG, down) == LOG
    again = UnitStatus("a", "active", pid=8, restarts=1, started_by="supervisor", started_at=NOW - 10_700)
    assert collected(LOG, again) == LOG


@pytest.mark.parametrize(("zone", "kept"), [(-7200, "a line"), (7200, "2026-08-20 11:40")])
def test_stamps_without_a_zone_are_the_host_s_local_time(zone: int, kept: str) -> None:
    """Where it is ahead of UTC more is kept rather than too little: some lines may be in UTC."""
    window = 3600.0 if zone < 0 else 1800.0
    assert collected(LOG, RUNNING, window, zone).startswith(kept)


def test_of_programs_that_serve_nothing_only_the_name_is_kept() -> None:
    when = "Thu Aug 20 11:00:00 2026"
    rows = [
        f"7 1 Sl 900 {when} /home/ann/x/bin/python -m sglang.launch_server --port 30000",
        f"8 1 S 800 {when} /home/ann/secret-plan/bin/python train.py --key k3y",
        f"9 2 I 0 {when} [kworker/0:1-events]",
    ]
    assert _programs("\n".join(rows), 0.0).splitlines() == [
        rows[0],
        f"8 1 S 800 {when} python",
        rows[2],
    ]
