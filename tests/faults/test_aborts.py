"""Row 9: an abort at any stage, from anyone, returns every page on both sides to baseline."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.bed import Bed
from tests.faults.cell import measured
from tests.faults.load import unknown, wait

P, D = "prefill-0", "decode-0"
LONG, SHORT = "word " * 1200, "short"


@dataclass(frozen=True)
class Stage:
    """Where a request is when it is aborted, and the fault point that holds it there."""

    engine: str
    stage: str
    point: tuple[str, str, float] | None = None
    prompt: str = SHORT


STAGES = [
    Stage(P, "prefilling", prompt=LONG),
    Stage(P, "inflight", (P, "stall-transfer", 0.0)),
    Stage(D, "waiting", (D, "refuse-pages", 0.0)),
    Stage(D, "preallocated", (P, "stall-transfer", 0.0)),
    Stage(D, "transferring", (P, "slow-transfer", 2.0), LONG),
    Stage(D, "running"),
]
HOW = ["client", "prefill", "decode", "router"]
# A prefill that has handed a request over knows no more of it.
GONE = {("running", "prefill")}
# Each stage by the client, and each of the others at one stage.
DEFAULT = {(s.stage, "client") for s in STAGES} | {("inflight", "prefill"), ("transferring", "decode")}
CASES = [
    pytest.param(s, how, marks=() if (s.stage, how) in DEFAULT else pytest.mark.slow, id=f"{s.stage}-{how}")
    for s in STAGES
    for how in HOW
    if (s.stage, how) not in GONE
]


class Client:
    """A streaming client on a raw connection that can be closed from outside at any moment."""

    def __init__(self, url: str, request_id: str, prompt: str, tokens: int = 400) -> None:
        host, port = url.removeprefix("http://").split(":")
        params = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = json.dumps({"text": prompt, "stream": True, "sampling_params": params})
        headers = {"Content-Type": "application/json", "X-Request-ID": request_id}
        self.connection = http.client.HTTPConnection(host, int(port), timeout=30.0)
        self.connection.request("POST", "/generate", body, headers)

    def leave(self) -> None:
        self.connection.close()

    def end(self) -> bytes:
        """The rest of the answer; fails with a timeout when the request hangs."""
        return self.connection.getresponse().read()


@contextmanager
def held_there(bed: Bed, at: Stage) -> Iterator[None]:
    """The point that keeps requests at a stage is armed."""
    if at.point:
        bed.stack.admin(at.point[0], "faults", name=at.point[1], armed=True, value=at.point[2])
    try:
        yield
    finally:
        if at.point:
            bed.stack.admin(at.point[0], "faults", name=at.point[1], armed=False)


def aborted(bed: Bed) -> int:
    return sum(int(s["counters"]["requests_aborted"]) for s in bed.states().values())


def abort(bed: Bed, how: str, client: Client, request_id: str) -> None:
    if how == "client":
        client.leave()
        return
    try:
        bed.stack.admin("router" if how == "router" else f"{how}-0", "abort", id=request_id)
    finally:
        client.end()


def stage_of(bed: Bed, engine: str, request_id: str) -> str:
    return next((str(r["stage"]) for r in bed[engine].state()["requests"] if r["id"] == request_id), "")


@pytest.mark.parametrize(("at", "how"), CASES)
def test_cell(bed: Bed, at: Stage, how: str, record: Path | None) -> None:
    bed.heal()
    check_abort(bed, at, how, record, row=9)


@pytest.mark.slow
def test_a_prefill_that_has_handed_over_says_so_and_aborts_nothing(bed: Bed) -> None:
    bed.heal()
    at, request_id = STAGES[-1], f"abort-late-{time.monotonic_ns()}"
    before = aborted(bed)
    client = Client(bed.url, request_id, at.prompt, tokens=80)
    wait(lambda: stage_of(bed, D, request_id) == "running", 30.0, "it to run", 0.01)
    wait(lambda: not stage_of(bed, P, request_id), 5.0, "the prefill to be done with it", 0.01)
    assert bed.stack.admin(P, "abort", id=request_id) == {"aborted": False}
    assert b"[DONE]" in client.end() and aborted(bed) == before
    wait(bed.clean, 20.0, "every page to be free")


def check_abort(bed: Bed, at: Stage, how: str, record: Path | None, row: int) -> None:
    request_id = f"abort-{how}-{at.engine}-{at.stage}-{time.monotonic_ns()}"
    with measured(row, f"abort by {how} while {at.stage}", at.engine, record) as result:
        with held_there(bed, at):
            before = aborted(bed)
            client = Client(bed.url, request_id, unknown(at.prompt))
            wait(lambda: stage_of(bed, at.engine, request_id) == at.stage, 30.0, f"it to be {at.stage}", 0.01)
            struck = time.monotonic()
            abort(bed, how, client, request_id)
            wait(lambda: aborted(bed) > before, 10.0, "an engine to count the abort")
            result.detect_s, result.detect_by = time.monotonic() - struck, "an engine counts the abort"
            result.evidence = f"seen {at.stage}, then counted as aborted"
            wait(bed.clean, 20.0, "every page to be free")
        result.recover_s, result.held, result.requests = time.monotonic() - struck, bed.held(), 1
        assert bed.answers(), "the next answer is not right"
