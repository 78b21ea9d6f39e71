"""Many rooms are stalled, each with a deadline of its own: how late after it each one is let go."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.bed import Bed
from tests.faults.cell import measured
from tests.faults.load import wait

P = "prefill-0"
VALUE, ROOMS = 2.0, 60
# The transfer threads look every 50 ms at most when something is open; a deadline has a thread of its own.
BOUND = 0.05 + 0.1


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def test_deadline_to_release(bed: Bed, record: Path | None) -> None:
    bed.heal()
    old = bed[P].state()["timeouts"]["inflight"]["value"]
    with measured(11, f"{ROOMS} rooms stalled, each with its own deadline", P, record) as result:
        seen, before = bed[P].state()["dwell"]["total"], bed.hits(P, "stall-transfer")
        bed.stack.admin(P, "timeouts", inflight=VALUE)
        bed.stack.admin(P, "faults", name="stall-transfer", armed=True)
        struck = time.monotonic()
        try:
            with ThreadPoolExecutor(12) as pool:
                codes = Counter(pool.map(lambda _: ask(bed), range(ROOMS)))
            hits = bed.hits(P, "stall-transfer") - before
        finally:
            bed.stack.admin(P, "faults", name="stall-transfer", armed=False)
            bed.stack.admin(P, "timeouts", inflight=old)
        wait(lambda: bed[P].state()["dwell"]["total"] - seen >= ROOMS, 20.0, "every room to be released")
        released = [d for _, d, how in bed[P].state()["dwell"]["recent"][-ROOMS:] if how == "failed"]
        late = [d - VALUE for d in released]
        result.requests, result.failed = ROOMS, dict(codes)
        result.detect_s = p99(late)
        result.detect_by = f"p99 from a deadline to the end of its room; worst {max(late) * 1000:.1f} ms"
        if len(released) == ROOMS:
            result.evidence = f"stall-transfer acted {hits} times; {ROOMS} deadlines fired"
        wait(bed.clean, 20.0, "every page to be free")
        result.recover_s, result.held = time.monotonic() - struck, bed.held()
        assert codes == {"kv_transfer_timeout": ROOMS}, codes
        assert min(late) >= 0.0, "released before its deadline"
        assert p99(late) < BOUND, f"p99 {p99(late):.3f} s after the deadline"


def ask(bed: Bed) -> str:
    """The code that a request without a router ends with, on decode's leg."""
    room = secrets.randbits(62)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bed.leg, P, room)
        answer = bed.leg("decode-0", room)
        other.result()
    return "served" if answer.status_code == 200 else str(answer.json()["error"]["code"])
