"""Rows 15, 19 and 21: what comes from outside: stale references, a router that dies, prompts too long."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from tests.faults.bed import Bed
from tests.faults.cell import Cell, measured, run
from tests.faults.kinds import Kill
from tests.faults.load import Load, wait

P, D = "prefill-0", "decode-0"


@dataclass
class Orphaned(Kill):
    """Until the engines have let go of what the dead router had sent them; only then a router comes back."""

    def cure(self, bed: Bed) -> int:
        wait(bed.clean, 30.0, "the engines to end the orphans", every=0.1)
        return super().cure(bed)


def test_the_router_is_killed(bed: Bed, record: Path | None) -> None:
    cell = Cell(19, "SIGKILL", "router", partial(Orphaned, "router", "parent"), broken_ok=True)
    run(bed, cell, record)


def test_a_room_that_was_used_is_refused_to_a_decode_that_replays_it(bed: Bed, record: Path | None) -> None:
    bed.heal()
    room = secrets.randbits(62)
    with measured(15, "a used room's number is replayed", D, record) as result:
        with ThreadPoolExecutor(2) as pool:
            legs = [pool.submit(bed.leg, name, room) for name in (P, D)]
            first = legs[1].result()
        assert first.json()["choices"][0]["text"] == bed.right[0], first.text
        struck = time.monotonic()
        replayed = bed.leg(D, room)
        result.detect_s, result.detect_by = time.monotonic() - struck, "client: typed error"
        result.requests, result.failed = 2, {replayed.json()["error"]["code"]: 1}
        assert replayed.status_code >= 500, "a stale reference was served"
        if "ended on prefill" in replayed.json()["error"]["message"]:
            result.evidence = f"room {room} served once; the replay is answered {replayed.status_code}"
        assert result.detect_s < 5.0, "refused at a deadline, not by its number"
        wait(bed.clean, 20.0, "every page to be free")
        result.recover_s, result.held = time.monotonic() - struck, bed.held()
        assert bed.answers(), "the next answer is not right"


def test_a_prompt_of_twice_the_window_is_refused_and_costs_nobody_anything(
    bed: Bed, record: Path | None
) -> None:
    bed.heal()
    with measured(21, "a prompt of twice the window", "client", record) as result:
        with Load(bed.url, bed.right) as load:
            load.wait_rights(1, 0.0, 60.0, "a right answer before")
            struck = time.monotonic()
            too_long = {"prompt": [7] * 17000, "max_tokens": 4}
            answer = httpx.post(f"{bed.url}/v1/completions", json=too_long, timeout=40.0)
            result.detect_s, result.detect_by = time.monotonic() - struck, "client: typed error"
            code = answer.json()["error"]["code"]
            result.failed = {code: 1}
            if answer.status_code == 400:
                result.evidence = f"answered 400 {code}"
            load.wait_rights(6, struck, 60.0, "right answers after it")
            load.end()
            result.requests = 1 + len(load.shots)
            result.recover_s = min(s.ended for s in load.shots if s.began > struck) - struck
            assert load.fates() == {"right": len(load.shots)}, load.fates()
        wait(bed.clean, 20.0, "every page to be free")
        result.held = bed.held()
