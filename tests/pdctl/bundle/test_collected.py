"""What pdctl collected is read back: lives of logs, units, silent hosts, and pages that are damaged."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from pdctl.adapters.endpoints import Server
from pdctl.adapters.picture import Reach
from pdctl.bundle.documents import Documents
from pdctl.bundle.manifest import Asked, Declared, FleetPage, Manifest
from pdctl.bundle.read import facts_of
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.report import make
from pdctl.errors import ConfigError
from pdctl.facts.missing import Missing, known
from pdctl.units.spec import UnitStatus

AT = 1787220000.0  # 2026-08-20 10:00:00 UTC
STARTED = AT - 600.0
LINE = "[2026-08-20 {at} TP0] nixl_cu12._bindings.nixlBackendError: NIXL_ERR_BACKEND"
PAGE = FleetPage(
    "f",
    False,
    {"h": "10.0.0.1"},
    (Declared(Server("decode-0", "sglang", "decode", "http://10.0.0.1:1"), "a", "h", {}),),
)
RUNNING = UnitStatus("decode-0", "active", pid=7, started_at=STARTED, started_by="pdctl", wanted=True)


def asked(of: str, name: str, outcome: str = "ok", detail: str = "", document: str = "") -> Asked:
    return Asked(of, name, "", 0 if name == "facts" else 1, AT - 1.0, 0.1, 1, outcome, detail, document)


def facts(texts: dict[str, str], *questions: Asked, unit: UnitStatus = RUNNING, zone: int = 0) -> Facts:
    manifest = Manifest("0.1", (AT - 1.0, AT), 1.2, 1800.0, "", questions, ())
    said: dict[str, Any] = {"clock": AT, "zone": zone}
    whole = {
        "manifest.json": manifest.to_json(),
        "fleet.json": PAGE.to_json(),
        "hosts/h/answers.json": json.dumps({"sent": AT, "seconds": 0.0, "facts": said, "missing": {}}),
        "hosts/h/units.json": json.dumps({"units": {"decode-0": asdict(unit)}}),
    }
    return facts_of(Documents("b", whole | texts), 0.0)


def lines(found: Facts) -> list[str]:
    return [event.where for event in found.engines[0].traces.of("nixl.")]


LOG = "\n".join(
    [LINE.format(at="09:40:00"), "Traceback", "[2026-08-20 09:51:00 TP0] ready", LINE.format(at="09:59:00")]
)


def test_lines_of_an_earlier_life_are_kept_and_not_judged() -> None:
    assert lines(facts({"decode-0/log.txt": LOG})) == ["decode-0/log.txt:4"]


def test_a_life_that_began_unasked_is_judged_with_the_one_before() -> None:
    again = replace(RUNNING, restarts=1, started_by="supervisor")
    assert lines(facts({"decode-0/log.txt": LOG}, unit=again)) == ["decode-0/log.txt:1", "decode-0/log.txt:4"]


def test_the_keeper_s_mark_says_where_a_life_begins_without_any_time() -> None:
    marked = "\n".join(
        ["NIXL_ERR_BACKEND", "2026-08-20 09:50:00 [keeper] decode-0 started as pid 7", "NIXL_ERR_BACKEND"]
    )
    assert lines(facts({"decode-0/log.txt": marked})) == ["decode-0/log.txt:3"]


@pytest.mark.parametrize(("restarts", "judged"), [(0, 1), (1, 2), (5, 3)])
def test_a_unit_that_ended_is_judged_by_the_lives_since_it_was_asked_for(restarts: int, judged: int) -> None:
    log = "\n".join(
        line for pid in (5, 6, 7) for line in (f"[keeper] decode-0 started as pid {pid}", "NIXL_ERR_BACKEND")
    )
    failed = replace(RUNNING, state="failed", pid=None, exit_code=2, restarts=restarts)
    assert len(lines(facts({"decode-0/log.txt": log}, unit=failed))) == judged


WATCHDOG = "pdctl-f-decode@decode-0.service: Watchdog timeout (limit 10s)!"
UNIT = "pdctl-f-decode@decode-0.service - pdctl decode engine decode-0"


def _life(pid: int, systemd: bool, hour: int, minutes: int, end: str) -> list[str]:
    """The log of one life: up in its first minute, its last own line `minutes` later."""
    began = (
        f"Starting {UNIT}..."
        if systemd
        else f"2026-08-20 {hour:02}:00:00 [keeper] decode-0 started as pid {pid}"
    )
    stamp = f"2026-08-20 {hour:02}:{{}},000 INFO pdctl.engine: "
    up = stamp.format("00:09") + "decode-0 is up after 9.0 s"
    return [began, up, stamp.format(f"{minutes:02}:30") + "request r1 ended", end]


def _fired(found: Facts) -> list[str]:
    return [event.where for event in found.engines[0].traces.of("watchdog.fired")]


@pytest.mark.parametrize("systemd", [True, False])
@pytest.mark.parametrize(
    ("state", "code", "minutes", "judged"),
    [
        ("inactive", 0, 1, False),  # somebody stopped the life that healed it
        ("failed", 9, 1, True),  # it may be the same again
        ("failed", 9, 20, False),  # it was over for long
        ("active", None, 1, True),
        ("active", None, 20, False),
    ],
)
def test_what_ended_a_life_before_one_that_healed_is_over(
    systemd: bool, state: str, code: int | None, minutes: int, judged: bool
) -> None:
    log = _life(6, systemd, 8, 1, WATCHDOG) + _life(7, systemd, 9, minutes, "Stopped.")
    ended = replace(RUNNING, state=state, exit_code=code, restarts=1, started_by="supervisor")
    runs = replace(ended, started_at=AT - minutes * 60.0) if state == "active" else replace(ended, pid=None)
    found = facts({"decode-0/log.txt": "\n".join(log)}, unit=runs)
    assert _fired(found) == (["decode-0/log.txt:4"] if judged else [])
    codes = [p.finding.code for p in make(found, 1.0).verdict.findings if p.finding.severity.word == "error"]
    if state == "inactive":
        assert "PD446" not in codes and "PD201" in codes


def test_a_host_west_of_utc_loses_no_line_of_its_present_life() -> None:
    west = LINE.format(at="04:59:00")  # five hours behind, and a minute old
    assert lines(facts({"decode-0/log.txt": west}, zone=-5 * 3600)) == ["decode-0/log.txt:1"]
    assert lines(facts({"decode-0/log.txt": west})) == []


def test_colours_do_not_hide_a_line() -> None:
    coloured = "\x1b[2m2026-08-20 09:59:00\x1b[0m \x1b[31mNIXL_ERR_\x1b[1mBACKEND\x1b[0m"
    assert len(lines(facts({"decode-0/log.txt": coloured}))) == 1


def test_a_host_that_did_not_answer_is_missing_with_its_reason() -> None:
    manifest = Manifest("0.1", (AT - 1, AT), 5.0, 1800.0, "", (asked("h", "facts", "failed", "gone"),), ())
    texts = {"manifest.json": manifest.to_json(), "fleet.json": PAGE.to_json()}
    found = facts_of(Documents("b", texts), 0.0)
    assert isinstance(found.engines[0].member.unit, Missing) and "gone" in str(found.engines[0].member.unit)
    assert "gone" in str(found.hosts[0].clock)


def test_an_answer_that_was_taken_out_is_no_answer() -> None:
    question = asked("decode-0", "server_info", document="decode-0/server_info.1.json")
    found = facts({}, question)
    assert found.engines[0].reach is Reach.OK and not found.engines[0].pair.second.picture.ready  # type: ignore[union-attr]
    gone = facts({}, asked("decode-0", "server_info", "refused", "nothing listens on the port"))
    assert gone.engines[0].reach is Reach.REFUSED


def test_a_unit_that_ended_says_how() -> None:
    ended = UnitStatus("decode-0", "failed", exit_signal=9, restarts=2)
    found = facts({}, unit=ended).engines[0]
    assert found.traces.ended == -9 and found.traces.restarts == 2
    assert known(found.member.unit) and found.member.unit.state == "failed"


@pytest.mark.parametrize("name", ["manifest.json", "fleet.json"])
def test_a_damaged_page_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        facts({name: "{}"})
    with pytest.raises(ConfigError, match="not JSON"):
        facts({name: "{"})
