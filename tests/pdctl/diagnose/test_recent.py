"""What failed a moment ago, what was changed before it, and what a router took back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pdctl.adapters.picture import Reach
from pdctl.adapters.traces import Event, HostTraces
from pdctl.bundle.documents import Documents
from pdctl.bundle.read import facts_of
from pdctl.diagnose.facts import Facts
from pdctl.diagnose.report import make
from pdctl.facts.unit import Unit

AT = 1_700_000_000.0
TOLD = "at = 2026-09-03T12:10:00Z\n"
ENGINE = '[parties.{}]\nkind = "sglang"\nhealth = "ok"\nurl = "http://10.0.0.{}:30000"\n'


def ended(id: int, how: str, ago: float, code: str | None = None) -> dict[str, Any]:
    return {"id": f"r{id}", "room": id, "ended": how, "code": code, "seconds": 2.0, "ended_at": AT - ago}


def note(scene: Any, *recent: dict[str, Any]) -> list[Any]:
    scene.recent = list(recent)
    findings = make(scene.facts(), 1.0).verdict.findings
    return [p.finding for p in findings if p.finding.code == "PD608"]


def test_requests_that_failed_are_named_when_all_is_well_again(scene: Any) -> None:
    failed = [ended(n, "failed", 6.0, "kv_transfer_failed") for n in (1, 2)]
    (found,) = note(scene, *failed, ended(3, "done", 1.0))
    assert found.severity.word == "info" and "2 requests failed" in found.summary
    assert "2 kv_transfer_failed" in found.summary and "6.0 s ago" in found.summary
    assert any("r1 (room 1)" in line for line in found.evidence)


def test_the_mistakes_of_clients_are_no_failures(scene: Any) -> None:
    codes = ("model_not_found", "not_supported", "invalid_json", "body_too_large", "context_length_exceeded")
    assert not note(scene, *(ended(n, "failed", 6.0, code) for n, code in enumerate(codes)))


def test_three_in_a_row_and_nothing_since_is_a_warning(scene: Any) -> None:
    row = [ended(n, "failed", 9.0 - n, "peer_lost") for n in (1, 2, 3)]
    assert note(scene, ended(9, "done", 60.0), *row)[0].severity.word == "warning"
    assert note(scene, *row, ended(9, "done", 1.0))[0].severity.word == "info"
    full = [ended(n, "failed", 9.0 - n, "queue_timeout") for n in (1, 2, 3)]
    assert note(scene, *full)[0].severity.word == "info"


def test_what_clients_did_and_what_is_long_over_is_no_note(scene: Any) -> None:
    mine = [ended(1, "failed", 5.0, "context_length_exceeded"), ended(2, "aborted", 5.0, "aborted")]
    assert note(scene, *mine, ended(3, "failed", 900.0, "kv_corrupt")) == []


def facts(texts: dict[str, str]) -> Facts:
    return facts_of(Documents("b", texts), AT)


UPGRADED = 'what = "upgraded"\nname = "sglang"\nvalue = "1.1 -> 1.2"\n'
FAILED = (
    "[2026-09-03 12:06:01] Decode transfer failed for request rank=0 with exception "
    "KVTransferError(bootstrap_room=11): Request 11 timed out after 300.0s in KVPoll.WaitingForInput\n"
)


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (
            'what = "upgraded"\nname = "sglang"\nvalue = "1.1 -> 1.2"\nat = 2026-09-03T11:55:00Z',
            "go back to 1.1",
        ),
        (
            'what = "setting"\nname = "UCX_TLS"\nvalue = "rc"\nat = 2026-09-03T11:55:00Z',
            "go back to what",
        ),
        (UPGRADED + "at = 2026-09-03T12:09:00Z", ""),
        (UPGRADED + "cured = false", ""),
        (UPGRADED + 'party = "prefill-9"', ""),
    ],
)
def test_a_change_from_before_is_the_first_doubt(change: str, doubt: str) -> None:
    told = TOLD + f"[[changes]]\n{change}\n" + ENGINE.format("prefill-0", 1) + ENGINE.format("decode-0", 2)
    texts = {"bundle.toml": told, "decode-0.log": FAILED}
    leader = make(facts(texts), 1.0).verdict.findings[0].finding
    assert leader.code == "PD525" and 2 <= len(leader.hypotheses) <= 3
    tests = [h.test for h in leader.hypotheses]
    assert any("change nothing else" in t and t.startswith(doubt) for t in tests) == bool(doubt), tests
    assert not doubt or tests[0].startswith(doubt)


REFUSED = (
    "2026-09-03 12:00:12 WARN Health check failed for worker http://10.0.0.1:30000: Connection refused\n"
)
OPEN = (
    "2026-09-03 12:00:13 WARN Circuit breaker state transition closed -> open worker=http://10.0.0.1:30000\n"
)
WORKS = (
    "[2026-09-03 12:09:58] Decode batch. #running-req: 3, gen throughput (token/s): 210.12, #queue-req: 0\n"
)


@pytest.mark.parametrize(
    ("later", "loud"),
    [
        ("", True),
        ("Circuit breaker state transition half_open -> closed worker=http://10.0.0.1:30000", False),
        ("worker http://10.0.0.1:30000 is healthy again", False),
        ("worker http://10.0.0.1:30000 marked unhealthy -> healthy", False),
        ("Circuit breaker transition half_open -> closed worker=http://10.0.0.7:30000", True),
    ],
)
def test_a_worker_that_was_taken_back_is_no_alarm(later: str, loud: bool) -> None:
    told = (
        TOLD
        + ENGINE.format("prefill-0", 1)
        + ENGINE.format("decode-0", 2)
        + '[parties.router]\nhealth = "ok"\n'
    )
    prefill = WORKS.replace("Decode batch", "Prefill batch").replace("gen", "input")
    texts = {
        "bundle.toml": told,
        "router.log": REFUSED + OPEN + (f"2026-09-03 12:01:36 INFO {later}\n" if later else ""),
        "decode-0.log": WORKS,
        "prefill-0.log": prefill,
    }
    findings = make(facts(texts), 1.0).verdict.findings
    codes = {p.finding.code for p in findings if p.finding.severity.word != "info"}
    assert bool(codes) == loud, codes


def test_a_peer_that_says_that_it_is_ready_again_is_no_alarm() -> None:
    told = TOLD + ENGINE.format("prefill-0", 1) + ENGINE.format("decode-0", 2) + "[parties.router]\n"
    ready = "[2026-09-03 12:01:30] The server is fired up and ready to roll!\n"
    texts = {"bundle.toml": told, "router.log": REFUSED, "prefill-0.log": ready}
    assert make(facts(texts), 1.0).verdict.status == "healthy"


@pytest.mark.parametrize(
    ("prefill", "decode", "found"),
    [
        # requests so far, held, requests 10 s before, held then: of the prefill and of the decode
        ((3, 0, 3, 0), (8150, 24, 8123, 22), True),
        ((3, 0, 3, 0), (40, 2, 30, 2), True),
        ((8000, 0, 8000, 0), (8150, 3, 8123, 30), False),  # decode ends what it has
        ((8000, 0, 8000, 0), (8150, 31, 8120, 30), True),  # many came, none to the prefill
        ((3, 1, 3, 0), (8150, 24, 8123, 22), False),  # it computes one
        ((30, 0, 29, 0), (8150, 24, 8123, 22), False),  # short prompts go to decode alone
        ((0, 0, 0, 0), (5, 0, 5, 0), False),
    ],
)
def test_prefills_that_nobody_chooses(prefill: Any, decode: Any, found: bool) -> None:
    told = TOLD
    for name, (total, held, before, held_before) in (("prefill-0", prefill), ("decode-0", decode)):
        told += f'[parties.{name}]\nkind = "vllm"\nhealth = "ok"\n'
        told += f"numbers = {{ finished_total = {total}.0, running = {held}.0 }}\n"
        told += f"numbers_before = {{ finished_total = {before}.0, running = {held_before}.0 }}\n"
    codes = {p.finding.code for p in make(facts({"bundle.toml": told}), 1.0).verdict.findings}
    assert ("PD115" in codes) == found


def test_an_engine_that_ended_and_was_not_asked_is_not_said_to_answer() -> None:
    told = TOLD + '[parties.decode-0]\nkind = "vllm"\nexit = 1\n'
    (placed,) = make(facts({"bundle.toml": told}), 1.0).verdict.findings
    assert placed.finding.code == "PD201" and not any("HTTP" in line for line in placed.finding.evidence)


HOST, GROUP = "Out of memory", "Memory cgroup out of memory"


def oom(scene: Any, hosts: Any, ago: float, ready: bool = True, want: str = HOST, **unit: Any) -> list[str]:
    """Severities of PD210: units began 1000 s ago, the kernel killed a python `ago` s ago."""
    line = f"{want}: Killed process 26256 (python) total-vm:5161476kB"
    where, values = "hosts/local/dmesg.txt:1", {"name": "python", "pid": "26256"}
    event = Event("kernel.oom_kill", "local", AT - ago, 1, where, line, values=values)
    scene.hosts = [hosts(traces=HostTraces(events=(event,)))]
    for name in ("prefill-0", "decode-0", "router"):
        running = Unit(name, "running", True, 100, None, 0, AT - 1000, AT - 1000)
        scene.units[name] = replace(running, **unit) if name == "decode-0" else running
    scene.docs["decode-0"] |= {"ready": ready, "not_ready": [] if ready else ["no peer"]}
    found = [p.finding for p in make(scene.facts(), 1.0).verdict.findings]
    return [f.severity.word for f in found if f.code == "PD210"]


def test_a_process_that_was_killed_long_before_a_life_is_not_its_end(scene: Any, hosts: Any) -> None:
    assert oom(scene, hosts, ago=1500.0) == []
    assert oom(scene, hosts, ago=1500.0, restarts=2, started_at=AT - 5) == []
    ended = {"state": "failed", "exit": -9, "started_at": None}
    scene.reach["decode-0"] = Reach.REFUSED
    assert oom(scene, hosts, ago=1500.0, since=AT - 1490, **ended) == ["warning"]
    assert oom(scene, hosts, ago=1500.0, since=AT - 4, **ended) == []


def test_one_that_was_killed_beside_engines_that_are_well_is_a_note(scene: Any, hosts: Any) -> None:
    assert oom(scene, hosts, ago=500.0) == ["info"]
    assert oom(scene, hosts, ago=500.0, ready=False) == ["warning"]


def test_one_that_outgrew_the_limit_of_its_own_group_is_no_note_beside_engines_that_are_well(
    scene: Any, hosts: Any
) -> None:
    assert oom(scene, hosts, ago=500.0, want=GROUP) == []
    assert oom(scene, hosts, ago=500.0, want=GROUP, ready=False) == ["warning"]


def test_one_that_was_killed_before_a_start_or_a_stop_is_a_note(scene: Any, hosts: Any) -> None:
    """An engine that loads, one that a co-restart stopped, one that never ran: none of them was killed."""
    scene.reach["decode-0"] = Reach.REFUSED
    young = {"state": "starting", "since": AT - 5, "started_at": AT - 5, "started_by": "pdctl"}
    assert oom(scene, hosts, ago=60.0, ready=False, **young) == ["info"]
    assert oom(scene, hosts, ago=4.0, ready=False, **young) == ["warning"]
    assert oom(scene, hosts, ago=60.0, ready=False, **young | {"restarts": 1}) == ["warning"]
    stopped = {"state": "stopped", "wanted": False, "pid": None, "started_at": None}
    assert oom(scene, hosts, ago=60.0, ready=False, exit=0, **stopped) == ["info"]
    assert oom(scene, hosts, ago=60.0, ready=False, since=None, **stopped) == ["info"]


@pytest.mark.parametrize(("seconds", "named"), [(0.1, True), (20.0, False)])
def test_waits_for_places_in_a_peak_do_not_excuse_a_pinned_request(
    scene: Any, legs: Any, seconds: float, named: bool
) -> None:
    """Twelve seconds are long, however long others waited; not where the writes of a room take seconds."""
    doc = scene.docs["prefill-0"]
    doc["dwell"]["recent"] = [[AT - 10.0, 15.0, "done"] for _ in range(40)]
    doc["counters"] |= {"transfers_ok": 10, "transfer_seconds": seconds}
    scene.route("r7", 12.0)
    scene.hold("prefill-0", legs("r7", "inflight", stage_age_s=12.0, waiting_on="transfer"))
    scene.hold("decode-0", legs("r7", "transferring", stage_age_s=12.0, waiting_on="transfer"))
    findings = make(scene.facts(), 1.0).verdict.findings
    assert [p.finding.code for p in findings if p.finding.code == "PD602"] == ["PD602"] * named
