"""What a line about a failed hand-over says: whose decision, which room, which peer, how long."""

from __future__ import annotations

import pytest

from pdctl.adapters.signs import TABLE
from pdctl.adapters.traces import Reading, Traces
from pdctl.diagnose.loads import at_work, grows, stands
from pdctl.diagnose.rooms import SIGNS, Kind, failure

HEAD = "[2026-08-20 10:05:00 TP3] "


@pytest.mark.parametrize(
    ("line", "kind", "room", "seconds", "remote"),
    [
        (
            "Prefill bootstrap failed for request rank=0 req.rid='a' req.bootstrap_room=57 with exception "
            "KVTransferError(bootstrap_room=57): Request 57 timed out after 300.0s in KVPoll.Bootstrapping",
            Kind.TIMEOUT, "57", 300.0, "",
        ),
        ("KVTransferError(bootstrap_room=58): Aborted by AbortReq", Kind.ABORT, "58", None, ""),
        (
            "KVTransferError(bootstrap_room=58): Failed due to an unknown reason from another rank",
            Kind.ECHO, "58", None, "",
        ),
        (
            "KVTransferError(bootstrap_room=59): Decode instance could be dead, remote mooncake session "
            "10.0.0.9:15530 is not alive",
            Kind.LOST_PEER, "59", None, "10.0.0.9:15530",
        ),
        (
            "NIXL transfer failure: handshake_setup_failed | Context: {'remote_engine_id': 'b1f5-77'}",
            Kind.OWN, "", None, "b1f5-77",
        ),
        (
            "Request cmpl-4 timed out after 480 seconds without being sent. Freeing its blocks",
            Kind.TIMEOUT, "", 480.0, "",
        ),
        ("KV cache transfer of request 41 timed out after 60000 milliseconds", Kind.TIMEOUT, "", 60.0, ""),
    ],
)  # fmt: skip
def test_a_failure_is_read(line: str, kind: Kind, room: str, seconds: float | None, remote: str) -> None:
    events = [e for e in TABLE.scan(HEAD + line, "p", "p.log") if e.sign in SIGNS]
    found = failure(events[0])
    assert (found.kind, found.room, found.seconds, found.remote) == (kind, room, seconds, remote)
    assert found.at is not None and found.began == found.at - (seconds or 0.0)


@pytest.mark.parametrize(
    "line",
    [
        "KV Transfer metrics: Num successful transfers=9, Num failed transfers=0",
        "server_args=ServerArgs(kv_cache_dtype='auto', kv_load_failure_policy='fail')",
        "GPU KV cache usage: 12.0%, Prefix cache hit rate: 0.0%",
    ],
)
def test_healthy_lines_are_no_failures(line: str) -> None:
    assert [e.sign for e in TABLE.scan(HEAD + line, "p", "p.log") if e.sign in SIGNS] == []


def traces(name: str, *pairs: tuple[float | None, float]) -> Traces:
    return Traces(readings=tuple(Reading(at, "metrics", {name: value}) for at, value in pairs))


def test_a_number_stands_for_as_long_as_it_has_its_present_value() -> None:
    assert stands(traces("queue_inflight", (0.0, 1.0), (10.0, 4.0), (70.0, 4.0)), "queue_inflight") == 60.0
    assert stands(traces("queue_inflight", (0.0, 0.0), (70.0, 0.0)), "queue_inflight") == 0.0
    assert stands(traces("queue_inflight", (0.0, 4.0)), "queue_inflight") == 0.0


def test_an_old_rate_is_no_work() -> None:
    old = traces("generation_tps", (0.0, 400.0))
    assert at_work(old)
    later = Traces(readings=(*old.readings, Reading(600.0, "metrics", {"running": 0.0})))
    assert not at_work(later)


def test_a_queue_that_stands_does_not_grow() -> None:
    assert grows([10, 30, 29, 60, 90]) and not grows([40, 41, 40, 41]) and not grows([90, 10, 60])
